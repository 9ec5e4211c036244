#include "torch/layer.h"

#include <algorithm>
#include <array>
#include <vector>

#include "torch/complex.h"

namespace fastgemm::torch_ops {
namespace {

// bias and residual must have the type of the result. A bias of the operands' type is converted; it is small.
std::optional<Tensor> of_result_type(const std::optional<Tensor>& bias, const View& x, int32_t result) {
  if (!bias) return std::nullopt;
  const View v(*bias);
  if (v.dtype == result) return bias;
  if (v.dtype != x.dtype)
    bad_value("bias has dtype " + dtype_text(v.dtype) + ", expected that of input, " + dtype_text(x.dtype));
  return contiguous_matrices(bias->get(), v, result);
}

void check_terms(const View& x, int64_t n, const TensorRef& bias, const TensorRef& residual, int32_t result) {
  if (bias) {
    require_same_device("bias", bias.view, "input", x);
    if (bias.view.dim != 1 || bias.view.size(1) != n)
      bad_value("bias has shape " + shape_text(bias.view.shape()) + ", expected " +
                shape_text(std::array{n}) + ", a number for each row of weight");
  }
  if (!residual) return;
  require_same_device("residual", residual.view, "input", x);
  std::vector<int64_t> shape(x.sizes, x.sizes + x.dim);
  shape.back() = n;
  if (!std::ranges::equal(residual.view.shape(), shape))
    bad_value("residual has shape " + shape_text(residual.view.shape()) + ", expected that of the result, " +
              shape_text(shape));
  if (residual.view.dtype != result)
    bad_value("residual has dtype " + dtype_text(residual.view.dtype) + ", expected that of the result, " +
              dtype_text(result));
}

}  // namespace

Activation activation_of(const std::optional<std::string>& name) {
  if (!name) return Activation::none;
  constexpr std::string_view names[kActivations] = {"", "relu", "gelu", "gelu_tanh", "silu"};
  for (int i = 1; i < kActivations; ++i)
    if (*name == names[i]) return static_cast<Activation>(i);
  bad_value("unknown activation '" + *name + "'; accepted: 'relu', 'gelu', 'gelu_tanh', 'silu' or None");
}

AtenTensorHandle multiply_layer(ProductCall call, int64_t n, const LayerTerms& terms) {
  const View& x = call.a.view;
  const int32_t result = call.out_dtype.value_or(x.dtype);
  const std::optional<Tensor> bias = of_result_type(terms.bias, x, result);
  TensorRef of_bias, of_residual;
  if (bias) of_bias = viewed(*bias);
  if (terms.residual) of_residual = viewed(*terms.residual);
  check_terms(x, n, of_bias, of_residual, result);
  if (terms.activation == Activation::none && !terms.are_two()) {  // a product plus one matrix
    call.c = bias ? of_bias : of_residual;
  } else {
    call.activation = terms.activation, call.bias = of_bias, call.c = of_residual;
  }
  return multiply(call);
}

}  // namespace fastgemm::torch_ops
