// Multiplies tensors. The ops of library.cpp and the overrides of torch's own products (csrc/torch/override)
// call it. The caller owns the tensors.
#pragma once

#include <optional>
#include <stdexcept>
#include <string_view>

#include "core/select.h"
#include "torch/queries.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

// A tensor and its view; both are empty if the call has no such operand.
struct TensorRef {
  AtenTensorHandle tensor = nullptr;
  View view;
  explicit operator bool() const { return tensor != nullptr; }
};
inline TensorRef viewed(const Tensor& t) { return {t.get(), View(t)}; }
// Another handle of a tensor, which the caller owns.
inline AtenTensorHandle new_handle(AtenTensorHandle of) {
  AtenTensorHandle made;
  check(aoti_torch_new_tensor_handle(of, &made), "new_tensor_handle");
  return made;
}
inline Tensor shared(const TensorRef& t) { return Tensor(new_handle(t.tensor)); }

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ProductCall {
  TensorRef a, b, c, out;
  double alpha = 1.0;
  std::optional<double> beta;  // none: 1 with c, else 0
  bool trans_a = false, trans_b = false;
  Choice choice;
  std::optional<Precision> precision;  // none: on a CPU as torch's flags say (plans.h), on a GPU ieee
  std::optional<int32_t> out_dtype;
  Symmetry symmetry;  // what the caller promises about the result
  // If one of them is given, the result is activation(product + bias) + beta * c. bias has one number per
  // column.
  Activation activation = Activation::none;
  TensorRef bias;
  bool tune = false;  // measured where it first runs (first_calls.h)
  // One group of many, whose sizes change from call to call: never measured where it first runs.
  bool is_group = false;
  // If given, b is packed: its view has the address of the codes, shape (n, k), and the type of a.
  PackedWeight packed;
  SumScales scales;  // of a single matrix
};

// Computes the product into out and returns null; without out, returns a new tensor. take_last_gemm_kernel()
// tells which kernel ran. Throws std::invalid_argument if operands or scales do not fit each other, CannotRun
// if the requested level or kernel cannot compute the product, and OutOfMemory.
AtenTensorHandle multiply(const ProductCall&);

// Sets the answer of take_last_gemm_kernel() for a product that multiply() does not compute itself. The name
// must be one of the table.
void tell_last_gemm_kernel(std::string_view name);

// How many plans this thread made because it had none with the same signature.
uint64_t products_planned();

}  // namespace fastgemm::torch_ops
