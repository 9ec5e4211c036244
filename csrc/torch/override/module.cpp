// The module fastgemm._override: the functions of this library that Python calls.
#include <ATen/core/Tensor.h>
// The header above comes first, because the one below needs it.
#include <ATen/ops/empty_ops.h>

#include <mutex>

#include "torch/hooks.h"
#include "torch/override/at_once.h"
#include "torch/override/convert.h"
#include "torch/override/flags.h"
#include "torch/override/guarded.h"
#include "torch/override/modes.h"
#include "torch/override/registration.h"
#include "torch/override/scope.h"

namespace fastgemm::override {
namespace {

AtenTensorHandle empty(const torch_ops::View& v) {
  const c10::Device device(c10::DeviceType(v.device_type), c10::DeviceIndex(v.device_index));
  const auto key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  auto made = std::make_unique<at::Tensor>(at::_ops::empty_memory_format::redispatch(
      c10::DispatchKeySet(key), c10::fromIntArrayRefSlow(at::IntArrayRef(v.sizes, size_t(v.dim))),
      at::ScalarType(v.dtype), at::kStrided, device, std::nullopt, std::nullopt));
  return handle_of(*made.release());
}

bool is_conjugated(AtenTensorHandle t) { return reinterpret_cast<const at::Tensor*>(t)->is_conj(); }

void throw_value_error(const char* text) { C10_THROW_ERROR(ValueError, text); }

PyObject* use_in_eager_mode(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    set_framework_probe(&torch_computes);
    static std::once_flag once;
    std::call_once(once, [] {
      torch_ops::set_hooks(
          {.empty = &empty, .is_conjugated = &is_conjugated, .throw_value_error = &throw_value_error});
      end_calls_by_signals();
      const WarningsDisabled disabled;
      register_eager();
      register_layer();
    });
    Py_RETURN_NONE;
  });
}

PyObject* take_over(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    register_overrides();
    Py_RETURN_NONE;
  });
}

PyObject* enter(PyObject*, PyObject* capsule) {
  return guarded([capsule]() -> PyObject* {
    set_innermost(capsule);
    Py_RETURN_NONE;
  });
}

template <class Function>
PyCFunction as_method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"matmul", as_method(&matmul_at_once), METH_FASTCALL,
     "a @ b, or NotImplemented if Python must handle the call."},
    {"gemm", as_method(&gemm_at_once), METH_FASTCALL, "The product with all options, or NotImplemented."},
    {"fused_linear", as_method(&fused_linear_at_once), METH_FASTCALL,
     "activation(input @ weight^T + bias) + residual, or NotImplemented."},
    {"linear", as_method(&linear_at_once), METH_FASTCALL, "A layer's product, or NotImplemented."},
    {"is_overridden", as_method(&is_overridden), METH_FASTCALL,
     "Whether a mode, or one of these operands, must see a call."},
    {"call_unseen", as_method(&call_unseen), METH_VARARGS | METH_KEYWORDS,
     "Calls a function with arguments while all torch function modes are disabled."},
    {"leave_alone", &leave_alone, METH_O, "From now on, modes of exactly this type do not see calls."},
    {"use_in_eager_mode", &use_in_eager_mode, METH_NOARGS,
     "Registers C++ kernels of the ops for eager mode. Only the first call does; each sets the probe of "
     "flags."},
    {"take_over", &take_over, METH_NOARGS,
     "Registers kernels that replace torch's products. Only the first call does."},
    {"enter", &enter, METH_O, "Sets the capsule of this thread's innermost patch; None: there is none."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace fastgemm::override

PyMODINIT_FUNC PyInit__override() {
  static PyModuleDef definition{PyModuleDef_HEAD_INIT, "_override",
                                "Replaces torch's products by fastgemm's.", -1, fastgemm::override::methods};
  PyObject* module = PyModule_Create(&definition);
  if (module) PyModule_AddStringConstant(module, "torch", FASTGEMM_TORCH_VERSION);
  return module;
}
