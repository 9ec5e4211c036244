// Repairs elements of a float32 product that sums of planes cannot represent: infinities, NaN and sums beyond
// the range of scaled planes. repaired() computes each element that is not finite again, by fused
// multiply-adds.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

struct Element {
  int64_t row, column;
};

// Returns element c of A * B to every lane; the whole warp computes it (a warp-shuffle reduction).
__device__ __forceinline__ float warp_dot(const Gemm<float>& g, Element c) {
  float sum = 0;
  FASTGEMM_NO_UNROLL
  for (int64_t k = threadIdx.x % 32; k < g.k; k += 32)
    sum = multiply_add(*g.a.at(c.row, k), *g.b.at(k, c.column), sum);
  FASTGEMM_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

// Returns each lane's sum or, where that is not finite, element place(lane) computed again. The whole warp
// calls it; `there` says whether a lane has an element.
template <class Place>
__device__ __forceinline__ float repaired(const Gemm<float>& g, float sum, bool there, Place&& place) {
  const uint32_t broken = __ballot_sync(0xffffffffu, there && !is_finite(sum));
  if (broken == 0) return sum;
  FASTGEMM_NO_UNROLL
  for (int lane = 0; lane < 32; ++lane) {
    if ((broken >> lane & 1) == 0) continue;
    const float dot = warp_dot(g, place(lane));
    if (int(threadIdx.x) % 32 == lane) sum = dot;
  }
  return sum;
}

// Repairs the sums that the second launch of a split k has added (parts/schedules/split_k.cuh).
struct Repaired {
  // place(lane) is where the first of a lane's sums lies in C.
  template <class Sums, class Place>
  __device__ __forceinline__ static void finish(Sums& sum, const Gemm<float>& g, int valid, Place&& place) {
    FASTGEMM_UNROLL
    for (int e = 0; e < kPer16Bytes<float>; ++e)
      sum[e] = repaired(g, sum[e], e < valid, [&](int lane) {
        const Element first = place(lane);
        return Element{first.row, first.column + e};
      });
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
