// Elements of a float32 product by fused multiply-adds: what sums of planes cannot give (infinities, NaN,
// sums beyond the range of scaled planes).
#pragma once

#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// Row `row` of A times column `column` of B, by a whole warp: every lane returns the sum.
__device__ __forceinline__ float warp_dot(const Gemm<float>& g, int64_t row, int64_t column) {
  float sum = 0;
  for (int64_t k = threadIdx.x % 32; k < g.k; k += 32)
    sum = multiply_add(*g.a.at(row, k), *g.b.at(k, column), sum);
  FASTGEMM_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

}  // namespace fastgemm::FASTGEMM_TARGET
