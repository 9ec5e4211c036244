// Products of groups of 8-bit floating-point numbers, for callers beside the op scaled_grouped_mm.
#pragma once

#include "torch/fp8_arguments.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

// Groups of rows of a (M, K) by b (G, K, N): offs (G) are the ends of the groups. Scales are grids of blocks,
// (rows, blocks of K) of a and (G, blocks of K, columns) of b. The caller owns the tensors.
struct ScaledGroupsCall {
  TensorRef a, b, scale_a, scale_b, offs;
  Blocks blocks_a, blocks_b;
  Choice choice;
  int32_t out_dtype = 0;
};

// Returns a new tensor (M, N), which the caller owns. Rows beyond the last end are zero. Throws as multiply()
// does; on a CPU also std::invalid_argument for wrong ends.
AtenTensorHandle multiply_scaled_groups(const ScaledGroupsCall&);

}  // namespace fastgemm::torch_ops
