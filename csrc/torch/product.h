// Multiplies tensors, for the ops of library.cpp and for the overrides of torch's own products
// (csrc/torch/override). The tensors belong to the caller.
#pragma once

#include <optional>
#include <stdexcept>
#include <string_view>

#include "core/select.h"
#include "torch/queries.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

// A tensor and its view; both are empty where the call has no such operand.
struct TensorRef {
  AtenTensorHandle tensor = nullptr;
  View view;
  explicit operator bool() const { return tensor != nullptr; }
};
inline TensorRef viewed(const Tensor& t) { return {t.get(), View(t)}; }

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ProductCall {
  TensorRef a, b, c, out;
  double alpha = 1.0;
  std::optional<double> beta;  // none: 1 with c, else 0
  bool trans_a = false, trans_b = false;
  Choice choice;
  std::optional<Precision> precision;  // none: torch's on a CPU (plans.h), and on a GPU ieee
  std::optional<int32_t> out_dtype;
  Symmetry symmetry;  // what the caller promises of the result
  // With either, the result is activation(product + bias) + beta * c: bias has a number for each column.
  Activation activation = Activation::none;
  TensorRef bias;
};

// Computes into out and returns null, or into a new tensor, which it returns, where there is no out.
// take_last_gemm_kernel() tells which kernel ran. Throws std::invalid_argument where operands or scales do
// not fit each other, CannotRun where the level or kernel asked for does not take them, and OutOfMemory.
AtenTensorHandle multiply(const ProductCall&);

// What take_last_gemm_kernel() answers where a product is computed elsewhere. The name is one of the table.
void tell_last_gemm_kernel(std::string_view name);

// How many products this thread had to plan because no earlier plan had their signature.
uint64_t products_planned();

}  // namespace fastgemm::torch_ops
