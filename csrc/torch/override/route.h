// Computes one call of a torch product by fastgemm.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "torch/override/products.h"
#include "torch/patch.h"

namespace fastgemm::override {

// Why no patch takes this call; none if one may. The arguments stay on the stack.
std::optional<std::string> why_passed_on(const Product&, at::ArrayRef<c10::IValue> arguments);

// Computes the result by the level or kernel of the frame, into `out` if the op has one. If that level or
// kernel cannot compute it, returns none and sets `reason`.
std::optional<at::Tensor> compute(const Product&, at::ArrayRef<c10::IValue> arguments, const PatchFrame&,
                                  std::string& reason);

}  // namespace fastgemm::override
