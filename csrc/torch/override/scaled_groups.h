// torch's grouped products of 8-bit floating point, aten::_scaled_grouped_mm and _scaled_grouped_mm_v2, by
// fastgemm: groups of rows, with scales of rows and columns. The functions are those of route.h for these
// ops.
#pragma once

#include <optional>
#include <string>

#include "torch/override/operands.h"
#include "torch/override/products.h"
#include "torch/patch.h"

namespace fastgemm::override {

std::optional<std::string> why_scaled_groups_passed_on(const Product&, Arguments, bool extends);

// Throws as torch_ops::multiply() does.
at::Tensor compute_scaled_groups(const Product&, Arguments, const PatchFrame&);

}  // namespace fastgemm::override
