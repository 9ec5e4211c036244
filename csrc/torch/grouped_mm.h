// Products of groups of uneven size: the op grouped_mm, and its part for kernels of a GPU.
#pragma once

#include "torch/product.h"

namespace fastgemm::torch_ops {

// A product whose rows (m), columns (n) or k are cut into groups, which `offs` (int32, contiguous) ends. The
// operand that has groups, and the result unless k is grouped, are matrices with all groups; the others have
// one matrix for each group. bias has a number for each column: (n), or (groups, n).
struct GroupedCall {
  TensorRef a, b, offs, bias, out;
  GroupedBy by = GroupedBy::none;
  int64_t groups = 0;
  Activation activation = Activation::none;
  Choice choice;
  std::optional<Precision> precision;
};

// Computes the product into `out`, whose memory is contiguous, by kernels that read the ends on the GPU.
// Throws as multiply() does.
void multiply_groups_on_gpu(const GroupedCall&);

}  // namespace fastgemm::torch_ops
