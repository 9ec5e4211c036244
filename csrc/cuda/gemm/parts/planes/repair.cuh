// Computes again the strips of C with sums that are not finite, from the original operands by fused
// multiply-adds, so that results are those of IEEE arithmetic. Contract: gemm_kernel has marked these strips
// in `unfinished` and has not stored them.
//
//   unfinished   0 0 0 1 0 0 ...   a word for each strip (16, kN); a strip of 1 is computed again
//
//   tile (kM, kN) of C   +--------------+
//                strip 0 | 16 rows      |  0
//                strip 1 |     NaN      |  1  -> repair_strip
//                strip 2 |              |  0
//
// Where bits must not depend on other rows (Bf16x6Invariant), the strips have been stored, and only their
// elements that are not finite are computed again.
//
// A sum is not finite if an operand has an infinity or NaN, if a value rounds to infinity in a plane, if a
// sum overflows, or if the range of a row is too large for a scale (scale_of() in scheme.cuh). If no strip is
// marked, the blocks only read their flags and end; the host is not involved.
#pragma once

#include "cuda/gemm/parts/planes/store.cuh"
#include "cuda/gemm/parts/schedules/chunks.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Each thread computes a column of the strip (16, kN).
template <class S>
__device__ __forceinline__ void repair_strip(const Gemm<float>& all,
                                             const EpilogueOf<typename S::Scheme>& epilogue,
                                             const TileOrigin<S>& place, int first_row) {
  constexpr int kK = 32;
  FASTGEMM_SHARED float a[kK][kStripRows];  // a part of A, transposed
  const Gemm<float> g = all.at_batch(place.batch);
  const int64_t column = place.column + int(threadIdx.x);
  float sum[kStripRows] = {};
  for (int64_t first = 0; first < g.k; first += kK) {
    const int count = int(min(g.k - first, int64_t{kK}));
    for (int i = int(threadIdx.x); i < kK * kStripRows; i += S::kN) {
      const int64_t row = first_row + i % kStripRows, k = first + i / kStripRows;
      a[i / kStripRows][i % kStripRows] = row < g.m && k < g.k ? *g.a.at(row, k) : 0.f;
    }
    __syncthreads();
    if (column < g.n) {
      float part[kStripRows] = {};
      for (int k = 0; k < count; ++k) {
        const float b = *g.b.at(first + k, column);
        FASTGEMM_UNROLL
        for (int i = 0; i < kStripRows; ++i) part[i] = multiply_add(a[k][i], b, part[i]);
      }
      FASTGEMM_UNROLL
      for (int i = 0; i < kStripRows; ++i) sum[i] += part[i];
    }
    __syncthreads();
  }
  if (column >= g.n) return;
  const auto is_stored = [&](int64_t row) {
    if constexpr (!kIsInvariant<typename S::Scheme>) return false;
    const float x = static_cast<const float*>(g.result.out)[row * g.result.row_stride + column];
    return x - x == 0;  // finite
  };
  FASTGEMM_UNROLL
  for (int i = 0; i < kStripRows; ++i) {
    if (first_row + i >= g.m || is_stored(first_row + i)) continue;
    if constexpr (kFuses<typename S::Scheme>)
      store_finished(epilogue, g.result, first_row + i, column, sum[i]);
    else
      g.result.store(first_row + i, column, sum[i]);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kN, 2)
    repair_kernel(const __grid_constant__ Gemm<float> g,
                  const __grid_constant__ ChunkSchedule<float> schedule,
                  const uint32_t* unfinished /* [segment][strip] */, int64_t strips, int segments,
                  const __grid_constant__ EpilogueOf<typename S::Scheme> epilogue) {
  grid_dependency_wait();
  FASTGEMM_SHARED uint32_t found[S::kN / 32];
  for (int64_t first = blockIdx.x; first < strips; first += int64_t(gridDim.x) * S::kN) {
    const int64_t mine = first + int64_t(threadIdx.x) * gridDim.x;
    bool is_unfinished = false;
    for (int i = 0; i < segments; ++i) is_unfinished |= mine < strips && unfinished[i * strips + mine] != 0;
    const uint32_t votes = __ballot_sync(0xffffffffu, is_unfinished);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = votes;
    __syncthreads();
    for (int i = 0; i < S::kN; ++i) {
      const uint32_t bits = found[i / 32];
      if (bits == 0) i |= 31;
      if (!(bits >> i % 32 & 1)) continue;
      const int64_t strip = first + int64_t(i) * gridDim.x;
      const TileOrigin<S> place(int(strip / S::kStrips), schedule);
      const int row = place.row + int(strip % S::kStrips) * kStripRows;
      if (row < g.m) repair_strip<S>(g, epilogue, place, row);
    }
    __syncthreads();
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET::planes
