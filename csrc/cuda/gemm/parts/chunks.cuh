// Stream-K for the kernels whose warpgroups multiply by wgmma: work is counted in chunks of stages, so that
// no branch of the main loop depends on how long a part is, and tiles are numbered in bands of 16 tile rows.
#pragma once

#include "cuda/gemm/parts/stream_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kChunk = 4;  // stages: at least that many of a tile follow each other in a block

template <class Acc>
struct ChunkSchedule : Schedule<Acc> {
  int stages;  // of a tile, at least kChunk

  // A tile's last chunk has what is left, up to 7 stages.
  __device__ __forceinline__ int stages_of(const Part& part) const {
    return (part.end == this->work.steps ? stages : part.end * kChunk) - part.first * kChunk;
  }
};

// The first row and column of a tile (S::kM, S::kN). With (128, 256) as many rows of A are read at a time as
// columns of B.
template <class S>
struct TileOrigin {
  int batch, row, column;

  template <class Acc>
  __device__ __forceinline__ TileOrigin(int tile, const Schedule<Acc>& g) {
    const TilePlace<16> place(tile, g.tiles_m, g.tiles_n);
    batch = place.batch, row = place.row * S::kM, column = place.column * S::kN;
  }
};

// Whether this block finishes the tile, whose other sums are then added; if not, its own have been handed
// over.
template <class S, class Acc>
__device__ __forceinline__ bool finishes(const Schedule<Acc>& g, Acc (&sum)[S::kSums], const Part& part,
                                         int warpgroup) {
  using Sums = PartialSums<S::kConsumerThreads, 4>;
  if (part.end != g.work.steps) {
    hand_over<Sums>(g, sum, S::kM * S::kN, int(blockIdx.x) * S::kConsumers + warpgroup, warp_index() % 4 == 0,
                    [&] { named_barrier(1 + warpgroup, 128); });
    return false;
  }
  if (part.first != 0) collect<Sums>(g, sum, part, S::kM * S::kN, S::kConsumers, warpgroup);
  return true;
}

}  // namespace fastgemm::FASTGEMM_TARGET
