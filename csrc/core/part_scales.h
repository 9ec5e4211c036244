// Products of bfloat16 whose operands are 8-bit floating-point numbers that were widened, each exactly.
// Scales of blocks along k differ within a sum. So each part of k that has the same scales is summed on its
// own, and the sums of the parts are multiplied by GemmProblem::scales_a, then by scales_b, and added in
// float32.
#pragma once

#include "core/context.h"

namespace fastgemm {

FASTGEMM_ANYWHERE bool scales_parts(const GemmProblem& p) {
  return !is_fp8(p.type) && p.scales_a.type != ScaleType::none;
}

// The size of a part of k. It may be larger than k.
FASTGEMM_ANYWHERE int64_t part_of_k(const GemmProblem& p) {
  return p.scales_a.block_cols < p.scales_b.block_rows ? p.scales_a.block_cols : p.scales_b.block_rows;
}

namespace cpu {

// Whether a part is all of k, or 32, 64 or 128, and each block consists of whole parts.
bool suits_parts(const GemmProblem&);

// The scales of a (of b) as float32 numbers in scratch memory, one for each row (column) and each part of k.
// Those of a part lie side by side; zeros follow, up to a multiple of 32.
BlockScales row_scales_of_parts(const GemmProblem&, Context&);
BlockScales column_scales_of_parts(const GemmProblem&, Context&);

}  // namespace cpu
}  // namespace fastgemm
