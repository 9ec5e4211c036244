#include "torch/override/at_once.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include "torch/override/flags.h"
#include "torch/override/gemm_op.h"
#include "torch/override/guarded.h"
#include "torch/override/kinds.h"
#include "torch/override/modes.h"

namespace fastgemm::override {
namespace {

bool is_watched() { return a_mode_intercepts() || torch::jit::tracer::isTracing(); }

// Releases Python's interpreter lock, which autograd's threads may need.
struct GilReleased {
  PyThreadState* const state = PyEval_SaveThread();
  ~GilReleased() { PyEval_RestoreThread(state); }
};

template <class Body>
PyObject* tensor_of(const Body& body) {
  return guarded([&]() -> PyObject* {
    at::Tensor result;
    {
      const GilReleased released;
      result = body();
    }
    return THPVariable_Wrap(std::move(result));
  });
}

bool are_known(const at::Tensor& a, const at::Tensor& b) {
  return (a.is_cpu() || a.is_cuda()) && a.dim() >= 2 && b.dim() >= 2 && a.layout() == at::kStrided &&
         b.layout() == at::kStrided;
}

// The precision that torch's flags set for a product on a GPU. None under autocast: a given precision would
// keep autocast from casting the operands.
OptionalText torchs_precision(const at::Tensor& a) {
  const bool follows = a.is_cuda() && follows_float32(a.scalar_type()) &&
                       torch_float32_precision() == Precision::tf32 &&
                       !at::autocast::is_autocast_enabled(c10::DeviceType::CUDA);
  return follows ? OptionalText("tf32") : std::nullopt;
}

// Reads arguments that have exactly the expected types. For all others the call goes to Python, which reports
// what is wrong.
struct Reader {
  PyObject* const* next;
  bool known = true;

  template <class T>
  T refuse(T empty) {
    known = false;
    return empty;
  }
  OptionalTensor tensor() {
    PyObject* const given = *next++;
    if (given == Py_None) return std::nullopt;
    return is_exact(given) ? OptionalTensor(THPVariable_Unpack(given)) : refuse(OptionalTensor());
  }
  // An integer that a double may not hold also goes to Python, which keeps it exact.
  std::optional<double> number() {
    PyObject* const given = *next++;
    if (given == Py_None) return std::nullopt;
    if (PyFloat_CheckExact(given)) return PyFloat_AsDouble(given);
    if (!PyLong_CheckExact(given)) return refuse(std::optional<double>());
    constexpr int64_t kMost = int64_t(1) << 53;
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(given, &overflow);
    const bool is_held = overflow == 0 && -kMost <= value && value <= kMost;
    return is_held ? double(value) : refuse(std::optional<double>());
  }
  bool flag() {
    PyObject* const given = *next++;
    return given == Py_True || (given != Py_False && refuse(false));
  }
  std::optional<int64_t> level() {
    PyObject* const given = *next++;
    if (given == Py_None) return std::nullopt;
    int overflow = 0;
    const int64_t value = PyLong_CheckExact(given) ? PyLong_AsLongLongAndOverflow(given, &overflow) : 0;
    return value == 0 || overflow != 0 ? refuse(std::optional<int64_t>()) : value;
  }
  OptionalText text() {
    PyObject* const given = *next++;
    if (given == Py_None) return std::nullopt;
    Py_ssize_t size = 0;
    const char* const data = PyUnicode_Check(given) ? PyUnicode_AsUTF8AndSize(given, &size) : nullptr;
    PyErr_Clear();  // the text cannot be encoded as UTF-8
    return data ? OptionalText({data, size_t(size)}) : refuse(OptionalText());
  }
  std::optional<at::ScalarType> dtype() {
    PyObject* const given = *next++;
    if (given == Py_None) return std::nullopt;
    return THPDtype_Check(given) ? std::optional(reinterpret_cast<THPDtype*>(given)->scalar_type)
                                 : refuse(std::optional<at::ScalarType>());
  }
};

}  // namespace

PyObject* matmul_at_once(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 2 || !is_exact(given[0]) || !is_exact(given[1]) || is_watched()) Py_RETURN_NOTIMPLEMENTED;
  const at::Tensor &a = THPVariable_Unpack(given[0]), &b = THPVariable_Unpack(given[1]);
  if (!are_known(a, b)) Py_RETURN_NOTIMPLEMENTED;
  if (const OptionalText precision = torchs_precision(a))
    return tensor_of(
        [&] { return bare_gemm().call(a, b, {}, 1.0, {}, false, false, {}, {}, precision, {}, false); });
  return tensor_of([&] { return bare_matmul().call(a, b); });
}

PyObject* gemm_at_once(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 12 || is_watched()) Py_RETURN_NOTIMPLEMENTED;
  Reader read{given};
  const OptionalTensor a = read.tensor(), b = read.tensor(), c = read.tensor();
  const std::optional<double> alpha = read.number(), beta = read.number();
  const bool trans_a = read.flag(), trans_b = read.flag();
  const std::optional<int64_t> level = read.level();
  const OptionalText kernel = read.text();
  OptionalText precision = read.text();
  const std::optional<at::ScalarType> out_dtype = read.dtype();
  const bool symmetric = read.flag();
  if (!read.known || !a || !b || !alpha || !are_known(*a, *b)) Py_RETURN_NOTIMPLEMENTED;
  if (!precision) precision = torchs_precision(*a);
  return tensor_of([&] {
    return bare_gemm().call(*a, *b, c, *alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype,
                            symmetric);
  });
}

PyObject* linear_at_once(PyObject*, PyObject* const* given, Py_ssize_t count) {
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

}  // namespace fastgemm::override
