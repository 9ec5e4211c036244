// Computes the limits of each group of rows, by which selection.cuh judges tiles, from the counts of each
// row.
#pragma once

#include "cuda/gemm/parts/residues/operand.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

// One block for each group of rows: of A, then of B.
template <class T>
__global__ void __launch_bounds__(kTileN) survey_kernel(const __grid_constant__ Sources<T> sources) {
  FASTGEMM_SHARED int least[kTileN / 32][kThresholds];
  const int groups_a = sources.a.groups();
  const bool in_a = int(blockIdx.x) < groups_a;
  const Source<T>&s = in_a ? sources.a : sources.b, &other = in_a ? sources.b : sources.a;
  const int group = int(blockIdx.x) - (in_a ? 0 : groups_a);
  const int64_t row = int64_t{group} * s.group + int(threadIdx.x);
  const int64_t chunks = (s.side.k + kCutK - 1) / kCutK;
  int above[kThresholds];
  FASTGEMM_UNROLL
  for (int j = 0; j < kThresholds; ++j) above[j] = int(s.side.k);
  if (!s.useful[group] || !any_useful<kTileN>(other)) {  // then the rows were not cut
    if (threadIdx.x < kThresholds) s.limits[group].least[threadIdx.x] = -1;
    return;
  }
  if (int(threadIdx.x) < s.group && row < s.side.side) {
    if (s.scales[row].unscale != 0 && s.shares) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kThresholds; ++j) above[j] = 0;
      for (int64_t i = 0; i < chunks; ++i) {
        const uint32_t counts = s.shares[row * chunks + i];
        FASTGEMM_UNROLL
        for (int j = 0; j < kThresholds; ++j) above[j] += int(counts >> 8 * j & 255);
      }
    }
  }
  FASTGEMM_UNROLL
  for (int j = 0; j < kThresholds; ++j) {
    FASTGEMM_UNROLL
    for (int lanes = 16; lanes > 0; lanes /= 2)
      above[j] = min(above[j], __shfl_xor_sync(0xffffffffu, above[j], lanes));
    if (threadIdx.x % 32 == 0) least[threadIdx.x / 32][j] = above[j];
  }
  __syncthreads();
  if (threadIdx.x >= kThresholds) return;
  int of_all = least[0][threadIdx.x];
  for (int i = 1; i < kTileN / 32; ++i) of_all = min(of_all, least[i][threadIdx.x]);
  s.limits[group].least[threadIdx.x] = of_all;
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
