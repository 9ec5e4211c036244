// torch's grouped product, aten::_grouped_mm, by fastgemm. The functions are those of route.h for this op.
#pragma once

#include <optional>
#include <string>

#include "torch/override/operands.h"
#include "torch/override/products.h"
#include "torch/patch.h"

namespace fastgemm::override {

std::optional<std::string> why_groups_passed_on(const Product&, Arguments, const PatchFrame&);

// Throws as torch_ops::multiply() does.
at::Tensor compute_groups(const Product&, Arguments, const PatchFrame&);

}  // namespace fastgemm::override
