// Computes one call of a torch product by fastgemm.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "torch/override/products.h"
#include "torch/patch.h"

namespace fastgemm::override {

// Why the patch of the frame does not take this call; none if it may. The arguments stay on the stack.
std::optional<std::string> why_passed_on(const Product&, at::ArrayRef<c10::IValue> arguments,
                                         const PatchFrame&);

// Computes the result by the level or kernel of the frame, into `out` if the op has one. If that level or
// kernel cannot compute it, returns none and sets `reason`.
std::optional<at::Tensor> compute(const Product&, at::ArrayRef<c10::IValue> arguments, const PatchFrame&,
                                  std::string& reason);

// The precision of products of the type of `a` under a patch: its own, or torch's. None: as torch's flags
// say, or the only one of the type.
std::optional<Precision> precision_for(const at::Tensor& a, const PatchFrame&);

}  // namespace fastgemm::override
