// fastgemm._override: the functions of this library that Python calls. Its two products are functions of
// Python's C interface, because a call through torch.ops costs 0.5 to 2 us more.
#include <ATen/core/Tensor.h>
// The header above comes first, because the ones below rely on it.
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/empty_ops.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <mutex>
#include <stdexcept>

#include "torch/hooks.h"
#include "torch/override/convert.h"
#include "torch/override/flags.h"
#include "torch/override/gemm_op.h"
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

// Whether torch computes with this tensor itself: it is no subclass, and no mode or trace intercepts it.
bool is_exact(PyObject* object) { return THPVariable_CheckTypeExact(Py_TYPE(object)); }
bool is_watched() { return at::impl::torch_function_mode_enabled() || torch::jit::tracer::isTracing(); }

// What body() returns, or nullptr with its exception as Python's. torch's macros for this catch pybind11's
// exceptions as well, whose inline code is compiled for one version of Python and would be all of this
// library that is.
template <class Body>
PyObject* guarded(const Body& body) {
  try {
    torch::PyWarningHandler warnings;
    try {
      return body();
    } catch (...) {
      warnings.set_in_exception();
      throw;
    }
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

// Releases the interpreter's lock, which autograd's threads may need.
struct Released {
  PyThreadState* const state = PyEval_SaveThread();
  ~Released() { PyEval_RestoreThread(state); }
};

template <class Body>
PyObject* tensor_of(const Body& body) {
  return guarded([&]() -> PyObject* {
    try {
      at::Tensor result;
      {
        const Released released;
        result = body();
      }
      return THPVariable_Wrap(std::move(result));
    } catch (const std::invalid_argument& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
      return nullptr;
    }
  });
}

PyObject* matmul(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 2 || !is_exact(given[0]) || !is_exact(given[1]) || is_watched()) Py_RETURN_NOTIMPLEMENTED;
  const at::Tensor &a = THPVariable_Unpack(given[0]), &b = THPVariable_Unpack(given[1]);
  const bool known = (a.is_cpu() || a.is_cuda()) && a.dim() >= 2 && b.dim() >= 2;
  if (!known || a.layout() != at::kStrided || b.layout() != at::kStrided) Py_RETURN_NOTIMPLEMENTED;
  const bool follows_torch = a.scalar_type() == at::kFloat || a.scalar_type() == at::kComplexFloat;
  if (a.is_cuda() && follows_torch && torch_float32_precision() != Precision::ieee) Py_RETURN_NOTIMPLEMENTED;
  return tensor_of([&] { return bare_matmul().call(a, b); });
}

// A layer with the choice left open: input, weight, bias or None, whether the weight is transposed.
PyObject* linear(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 4 || is_watched()) Py_RETURN_NOTIMPLEMENTED;
  const bool has_bias = given[2] != Py_None;
  if (!is_exact(given[0]) || !is_exact(given[1]) || (has_bias && !is_exact(given[2])))
    Py_RETURN_NOTIMPLEMENTED;
  const at::Tensor &input = THPVariable_Unpack(given[0]), &weight = THPVariable_Unpack(given[1]);
  const OptionalTensor bias = has_bias ? OptionalTensor(THPVariable_Unpack(given[2])) : std::nullopt;
  if (input.is_meta() || weight.is_meta()) Py_RETURN_NOTIMPLEMENTED;
  const bool transposed = given[3] == Py_True;
  return tensor_of([&] { return layer().call(input, weight, bias, transposed, {}, {}, {}); });
}

PyObject* use_in_eager_mode(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    static std::once_flag once;
    std::call_once(once, [] {
      torch_ops::set_hooks({.empty = &empty, .is_conjugated = &is_conjugated});
      set_framework_probe(&torch_computes);
      const Quietly quietly;
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
    {"matmul", as_method(&matmul), METH_FASTCALL, "a @ b, or NotImplemented for what Python has to look at."},
    {"linear", as_method(&linear), METH_FASTCALL, "A layer's product, or NotImplemented."},
    {"use_in_eager_mode", &use_in_eager_mode, METH_NOARGS,
     "Gives the ops for eager mode kernels in C++, once."},
    {"take_over", &take_over, METH_NOARGS, "Registers kernels in front of torch's products, once."},
    {"enter", &enter, METH_O, "Makes a capsule that of this thread's innermost patch; None: there is none."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace fastgemm::override

PyMODINIT_FUNC PyInit__override() {
  static PyModuleDef definition{PyModuleDef_HEAD_INIT, "_override",
                                "fastgemm in the place of torch's products.", -1,
                                fastgemm::override::methods};
  PyObject* module = PyModule_Create(&definition);
  if (module) PyModule_AddStringConstant(module, "torch", FASTGEMM_TORCH_VERSION);
  return module;
}
