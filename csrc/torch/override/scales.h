// The scales of torch's products of 8-bit floating point, as those of the op scaled_mm.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "torch/fp8_arguments.h"
#include "torch/override/operands.h"
#include "torch/override/products.h"

namespace fastgemm::override {

// Which codes share a scale. The numbers are those of torch's ScalingType.
enum class Recipe : int64_t { tensor = 0, row = 1, of_128 = 4, of_128x128 = 5 };

// The scales of one operand. `grid` has a number for each block of lines, the rows of a or the columns of b,
// and each block along k.
struct Scales {
  at::Tensor grid;
  Recipe recipe;
  int64_t lines, k;  // of the codes

  torch_ops::Blocks blocks() const;  // lines x k
  // Whether torch's kernels take the strides. On a GPU, they are those that cuBLASLt reads.
  bool are_in_torchs_order(bool on_gpu) const;
};
struct BothScales {
  Scales a, b;
};

// None unless the scales are float32 and of these recipes. _scaled_mm gives the recipes by the shapes of the
// scales, _scaled_mm_v2 by name. The second one has some scales in other shapes: those of b transposed, and
// those of 128x128 as (k, lines), with k rounded up to 4.
std::optional<BothScales> scales_at(const Product&, Arguments);

}  // namespace fastgemm::override
