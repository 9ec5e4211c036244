// The main kernel on GPUs without wgmma: persistent blocks of 8 warps, all of which copy and multiply
// (warp_multiply.cuh). Segments, stream-K and the marks for repair_kernel are those of gemm_kernel, and so
// are its narrow tiles.
//
//   tile (128, 128)   +----+----+----+----+     a warp has a quarter of each of 4 strips; a strip is stored,
//            strip 0  | w0 | w2 | w4 | w6 |     or left to repair_kernel, by its 4 warps together, because
//              ..  3  |    |    |    |    |     repair reads c, which may lie where the result does
//            strip 4  | w1 | w3 | w5 | w7 |
//              ..  7  |    |    |    |    |
//                     +----+----+----+----+
#pragma once

#include "cuda/gemm/parts/planes/store.cuh"
#include "cuda/gemm/parts/planes/warp_multiply.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Finds and marks the strips of the warp's tile in which any warp has a sum that is not finite. Bit i of the
// result is strip i.
template <class S>
__device__ __forceinline__ uint32_t find_unfinished(typename S::Shared& shared, const Arguments<S>& g,
                                                    const float (&sum)[S::kFragmentsM][S::kStripSums],
                                                    int tile, int warp) {
  static_assert(S::kWarpsN == 4 && S::kFragmentsM * S::kWarpsN <= 32);
  const int lane = fresh_lane(), first = warp % S::kWarpsM * S::kFragmentsM, column = warp / S::kWarpsM;
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kFragmentsM; ++i) {
    const bool found = __any_sync(0xffffffffu, !all_finite(sum[i]));
    if (lane == 0) shared.not_finite[first + i][column] = found;
  }
  __syncthreads();
  const bool mine = lane < S::kFragmentsM * S::kWarpsN && shared.not_finite[first + lane / 4][lane % 4] != 0;
  const uint32_t votes = __ballot_sync(0xffffffffu, mine);
  uint32_t found = 0;
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kFragmentsM; ++i) found |= uint32_t((votes >> 4 * i & 15) != 0) << i;
  if (column == 0 && lane < S::kFragmentsM)
    g.unfinished[int64_t(tile) * S::kStrips + first + lane] = found >> lane & 1;
  return found;
}

template <class S>
__device__ __forceinline__ void finish_tile(typename S::Shared& shared, const Arguments<S>& g,
                                            typename S::Acc (&sum)[S::kFragmentsM][S::kStripSums], int tile,
                                            int warp) {
  const TileOrigin<S> place(tile, g.schedule);
  const int row = warp % S::kWarpsM * S::kWarpM, column = warp / S::kWarpsM * S::kWarpN;
  uint32_t unfinished = 0;
  if constexpr (S::Scheme::kLoop == Loop::promoting) {
    const uint32_t scaled = load_scaled<S::kWarpM, S::kWarpN>(g, tile, row, column);
    if (__any_sync(0xffffffffu, scaled != 0)) {
      FASTGEMM_UNROLL
      for (int i = 0; i < S::kFragmentsM; ++i) unscale_strip(g, sum[i], place, row + i * kStripRows, column);
    }
    unfinished = find_unfinished<S>(shared, g, sum, tile, warp);
    if (!g.segment.is_last || kIsInvariant<typename S::Scheme>) unfinished = 0;
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kFragmentsM; ++i) {
    if (unfinished >> i & 1) continue;
    store_strip(g, sum[i], place, row + i * kStripRows, column);
    finish_stored_strip(g, place, row + i * kStripRows, column, S::kWarpN);
  }
}

template <class S>
__device__ __forceinline__ void multiply_part(typename S::Shared& shared, const Arguments<S>& g,
                                              const Part& part, typename WarpLoop<S>::Sums& sum) {
  const TileOrigin<S> place(part.tile, g.schedule);
  const int64_t tile_a = int64_t(place.batch * g.batch_a) * g.schedule.tiles_m + place.row / S::kM;
  const int64_t tile_b = int64_t(place.batch * g.batch_b) * g.schedule.tiles_n + place.column / S::kN;
  const int first = g.segment.first + part.first * kChunk;
  WarpLoop<S> loop(shared, warp_index());
  loop.multiply(sum, g.a + (tile_a * g.segment.all + first) * S::kImageA,
                g.b + (tile_b * g.segment.all + first) * S::kImageB, g.schedule.stages_of(part));
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) warp_kernel(const __grid_constant__ Arguments<S> g) {
#if FASTGEMM_PORTABLE
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  launch_dependents();
  grid_dependency_wait();
  Part part;
  for (int i = 0; part_of(g.schedule.work, i, part); ++i) {
    if (skips_tile(g, part)) continue;
    typename WarpLoop<S>::Sums sum;
    multiply_part(*shared, g, part, sum);
    if constexpr (S::Scheme::kSums > 1)
      part_of(g.schedule.work, fresh(i), part);  // computed again: registers are full of sums
    const int warp = warp_index();
    using Partial = PartialSums<S::kThreads, 4>;
    constexpr int kBlockSums = S::Scheme::kSums * S::kM * S::kN;
    auto& all = reinterpret_cast<typename S::Acc(&)[kBlockSums / S::kThreads]>(sum);
    if (part.end != g.schedule.work.steps) {
      hand_over<Partial>(g.schedule, all, kBlockSums, int(blockIdx.x), warp == 0, [] { __syncthreads(); });
      continue;
    }
    if (part.first != 0) collect<Partial>(g.schedule, all, part, kBlockSums);
    auto& strips = reinterpret_cast<typename S::Acc(&)[S::kFragmentsM][S::kStripSums]>(sum);
    finish_tile<S>(*shared, g, strips, part.tile, warp);
  }
#endif
}

}  // namespace fastgemm::FASTGEMM_TARGET::planes
