// A block of a packed weight as numbers. Kernels that read a matrix call this for each block that they copy
// or read, and then go on as with a matrix of their own type.
#pragma once

#include "core/packed_weight.h"
#include "core/problem.h"

namespace fastgemm {

// Row n and column k of the weight go to to[(n - first_n) * ld + (k - first_k)].
struct PackedBlock {
  const PackedWeight* weight;  // in plain order
  const void* codes;
  int64_t k_size;  // columns of the whole weight
  int64_t first_n, rows, first_k, depth;
  DType type;  // of `to`: f32, bf16 or f16
  void* to;
  int64_t ld;
};

// Computes weights in float32 as packed::weight_of() does, and rounds them once. Uses the instruction set of
// this processor.
void dequantize(const PackedBlock&);

}  // namespace fastgemm
