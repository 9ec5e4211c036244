// The product of matrices of 8-bit floating-point numbers, for callers beside the op scaled_mm.
#pragma once

#include "torch/fp8_arguments.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

// (scale_a * a) @ (scale_b * b) + bias of matrices. The caller owns the tensors; there may be no bias.
struct ScaledCall {
  TensorRef a, b, scale_a, scale_b, bias;
  Blocks blocks_a, blocks_b;
  Choice choice;
  int32_t out_dtype = 0;
};

// Returns a new tensor, which the caller owns. Throws as multiply() does.
AtenTensorHandle multiply_scaled(const ScaledCall&);

// The compute capability of the GPU that holds a tensor, 90 for 9.0; 0 on a CPU.
int capability_of(const View&);

// Whether fastgemm is the faster one for operands and float32 scales that torch's own kernel takes, on a GPU
// of this capability or, if it is 0, on a CPU. On a GPU it is not if a has more than kMostScaledRows rows.
inline constexpr int64_t kMostScaledRows = 128;
bool scaled_is_faster(int64_t m, int64_t n, int64_t k, const Blocks& blocks_a, const Blocks& blocks_b,
                      int capability);

}  // namespace fastgemm::torch_ops
