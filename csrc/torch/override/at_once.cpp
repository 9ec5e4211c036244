#include "torch/override/at_once.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unsafe_view.h>
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

// An undefined tensor becomes NotImplemented.
template <class Body>
PyObject* tensor_of(const Body& body) {
  return guarded([&]() -> PyObject* {
    at::Tensor result;
    {
      const GilReleased released;
      result = body();
    }
    if (!result.defined()) Py_RETURN_NOTIMPLEMENTED;
    return THPVariable_Wrap(std::move(result));
  });
}

bool are_known(const at::Tensor& a, const at::Tensor& b, int64_t least_dim = 2) {
  return (a.is_cpu() || a.is_cuda()) && a.dim() >= least_dim && b.dim() >= least_dim &&
         a.layout() == at::kStrided && b.layout() == at::kStrided;
}

// The precision that torch's flags set for a product on a GPU. None where autocast casts: a given precision
// would keep it from casting the operands.
OptionalText torchs_precision(const at::Tensor& a, bool is_cast = true) {
  const bool follows = a.is_cuda() && follows_float32(a.scalar_type()) &&
                       torch_float32_precision() == Precision::tf32 &&
                       !(is_cast && at::autocast::is_autocast_enabled(c10::DeviceType::CUDA));
  return follows ? OptionalText("tf32") : std::nullopt;
}

at::Tensor free_product(const at::Tensor& a, const at::Tensor& b) {
  if (const OptionalText precision = torchs_precision(a))
    return bare_gemm().call(a, b, {}, 1.0, {}, false, false, {}, {}, precision, {}, false);
  return bare_matmul().call(a, b);
}

bool is_recorded(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c) {
  return needs_gradient(a, b, c) || in_transform() || is_dual(a) || is_dual(b) || (c && is_dual(*c));
}

// With a vector as one row or one column, a dimension that the result lacks. As in torch, the result is not a
// view. Views that autograd need not know take half of the time.
at::Tensor product_of_vectors(const at::Tensor& a, const at::Tensor& b) {
  std::optional<at::AutoDispatchBelowADInplaceOrView> unrecorded;
  if (!is_recorded(a, b, {})) unrecorded.emplace();
  const at::Tensor result =
      free_product(a.dim() == 1 ? a.unsqueeze(0) : a, b.dim() == 1 ? b.unsqueeze(-1) : b);
  auto shape = result.sym_sizes().vec();
  if (b.dim() == 1) shape.pop_back();
  if (a.dim() == 1) shape.erase(shape.end() - (b.dim() == 1 ? 1 : 2));
  return at::_unsafe_view_symint(result, shape);
}

// Whether a product may be written into a tensor. Python refuses all other calls.
bool may_write(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c, const at::Tensor& out) {
  return !is_recorded(a, b, c) && !is_recorded(out, out, {}) &&
         (!out.is_inference() || c10::InferenceMode::is_enabled());
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
  if (!are_known(a, b, 1)) Py_RETURN_NOTIMPLEMENTED;
  return tensor_of(
      [&] { return a.dim() > 1 && b.dim() > 1 ? free_product(a, b) : product_of_vectors(a, b); });
}

PyObject* gemm_at_once(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 13 || is_watched()) Py_RETURN_NOTIMPLEMENTED;
  Reader read{given};
  const OptionalTensor a = read.tensor(), b = read.tensor(), c = read.tensor();
  const std::optional<double> alpha = read.number(), beta = read.number();
  const bool trans_a = read.flag(), trans_b = read.flag();
  const std::optional<int64_t> level = read.level();
  const OptionalText kernel = read.text();
  OptionalText precision = read.text();
  const std::optional<at::ScalarType> out_dtype = read.dtype();
  const bool symmetric = read.flag();
  OptionalTensor out = read.tensor();
  if (!read.known || !a || !b || !alpha || !are_known(*a, *b)) Py_RETURN_NOTIMPLEMENTED;
  if (out && !may_write(*a, *b, c, *out)) Py_RETURN_NOTIMPLEMENTED;
  if (!precision) precision = torchs_precision(*a, !out);
  return tensor_of([&] {
    if (out) {
      gemm_into().call(*a, *b, c, *alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype,
                       symmetric, *out);
      torch::autograd::impl::bump_version(*out);  // so that autograd notices what was written
      return *out;
    }
    return bare_gemm().call(*a, *b, c, *alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype,
                            symmetric);
  });
}

PyObject* fused_linear_at_once(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 9 || is_watched()) Py_RETURN_NOTIMPLEMENTED;
  Reader read{given};
  const OptionalTensor input = read.tensor(), weight = read.tensor(), bias = read.tensor();
  const OptionalTensor residual = read.tensor();
  const OptionalText activation = read.text();
  const std::optional<int64_t> level = read.level();
  const OptionalText kernel = read.text(), precision = read.text();
  const std::optional<at::ScalarType> out_dtype = read.dtype();
  if (!read.known || !input || !weight || in_transform()) Py_RETURN_NOTIMPLEMENTED;
  for (const OptionalTensor* t : {&input, &weight, &bias, &residual})
    if (*t && is_dual(**t)) Py_RETURN_NOTIMPLEMENTED;
  return tensor_of([&] {
    return fused_layer({*input, *weight, bias, residual, activation, level, kernel, precision, out_dtype});
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
