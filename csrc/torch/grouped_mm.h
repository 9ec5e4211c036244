// Products of groups of uneven size: the op grouped_mm, and its parts for a CPU and for a GPU.
#pragma once

#include "torch/product.h"

namespace fastgemm::torch_ops {

// A product whose rows (m), columns (n) or k are cut into groups, which `offs` (int32, contiguous) ends. The
// operand that has groups, and the result unless k is grouped, are matrices with all groups; the others have
// one matrix for each group. bias has a number for each column: (n), or (groups, n) unless n is grouped.
struct GroupedCall {
  TensorRef a, b, offs, bias, out;
  DType type = DType::f32;  // of the product, on a GPU
  GroupedBy by = GroupedBy::none;
  int64_t groups = 0;
  Activation activation = Activation::none;
  TensorRef rows;      // int32: row i of the product is row rows[i] of a; for groups of rows on a GPU
  bool gated = false;  // swiglu: b has the columns of a gate, then those of a value (GemmProblem::gated)
  Choice choice;
  std::optional<Precision> precision;
};

// Checks the operands, fills in `by`, `groups` and `out`, computes the product and returns it as a new
// tensor. Matrices of 3 dimensions on both sides are a batch, without offs. Rows (or columns) of the result
// beyond the last group are zero. Rows of the result begin at multiples of `alignment` bytes, and are
// contiguous by default. Throws as multiply() does; on a CPU also std::invalid_argument for wrong offs.
AtenTensorHandle multiply_groups(GroupedCall, const std::optional<int32_t>& out_dtype, int64_t alignment = 1);

// Where group `index` ends, of offs on a CPU; it begins at `begin`. Throws std::invalid_argument unless it
// lies in begin .. size.
int64_t end_of_group(const View& offs, int64_t index, int64_t begin, int64_t size);

// Computes the product into `out`, whose rows are contiguous, by kernels that read the ends on the GPU. `by`
// is not none. Throws as multiply() does.
void multiply_groups_on_gpu(const GroupedCall&);

// Whether torch's own kernel is the faster one for these operands, which it takes. On an H100 it is for
// bfloat16, large groups of rows and a long k: 1.07 times as fast for 1024 rows and a k of 7168, but 0.89 to
// 0.99 times for a k of 768 to 4096 (docs/grouped.md).
bool torch_is_faster(const View& a, const View& b);

}  // namespace fastgemm::torch_ops
