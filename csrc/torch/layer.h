// The bias, activation and residual of a layer, as the ops linear and quantized_linear take them.
#pragma once

#include <optional>
#include <string>

#include "torch/product.h"

namespace fastgemm::torch_ops {

// Throws std::invalid_argument for an unknown name.
Activation activation_of(const std::optional<std::string>& name);

struct [[gnu::visibility("hidden")]] LayerTerms {  // as Tensor is
  std::optional<Tensor> bias, residual;
  Activation activation = Activation::none;
  bool are_two() const { return bias && residual; }
};

// activation(a @ b^T + bias) + residual, where the call describes a and b, and b^T has shape (n, k). Throws
// std::invalid_argument if a term does not fit, and as multiply() does.
AtenTensorHandle multiply_layer(ProductCall call, int64_t n, const LayerTerms&);

}  // namespace fastgemm::torch_ops
