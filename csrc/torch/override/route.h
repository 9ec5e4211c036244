// Computes one call of a product of torch's by fastgemm.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "torch/override/products.h"
#include "torch/patch.h"

namespace fastgemm::override {

// Why no patch takes a call, or none: then `call` is what to compute. The arguments stay on the stack.
std::optional<std::string> why_passed_on(const Product&, at::ArrayRef<c10::IValue> arguments);

// Computes the result by the frame's level or kernel, into `out` where the op has one. Returns none, and the
// reason, where that level or kernel does not take the call.
std::optional<at::Tensor> compute(const Product&, at::ArrayRef<c10::IValue> arguments, const PatchFrame&,
                                  std::string& reason);

}  // namespace fastgemm::override
