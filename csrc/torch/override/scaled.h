// torch's products of 8-bit floating point, aten::_scaled_mm and _scaled_mm_v2, by fastgemm. The functions
// are those of route.h for these ops.
#pragma once

#include <optional>
#include <string>

#include "torch/override/operands.h"
#include "torch/override/products.h"
#include "torch/patch.h"

namespace fastgemm::override {

std::optional<std::string> why_scaled_passed_on(const Product&, Arguments, const PatchFrame&);

// Into `out`, if the op has one. Throws as torch_ops::multiply() does.
at::Tensor compute_scaled(const Product&, Arguments, const PatchFrame&);

}  // namespace fastgemm::override
