// Stream-K for kernels whose warpgroups multiply by wgmma. Contract: work is counted in chunks of kChunk
// stages, so that no branch of the main loop depends on the length of a part. Tiles are numbered in bands of
// 16 tile rows.
//
//   stages of a tile   0 1 2 3 | 4 5 6 7 | 8 9 10 11 12 13       14 stages: 3 chunks, the last one longer
//                      chunk 0 | chunk 1 | chunk 2
#pragma once

#include <numeric>

#include "cuda/gemm/parts/schedules/lower_triangle.cuh"
#include "cuda/gemm/parts/schedules/stream_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kChunk = plans::kChunk;  // stages; a block's part of a tile has at least one chunk

template <class Acc>
struct ChunkSchedule : Schedule<Acc> {
  int stages;  // stages per tile, at least kChunk

  // The last chunk of a tile also has the remaining stages, so up to 7.
  __device__ __forceinline__ int stages_of(const Part& part) const {
    return (part.end == this->work.steps ? stages : part.end * kChunk) - part.first * kChunk;
  }
};

// The order of tiles in a kernel that computes a triangle. The triangle is made of squares. A square has as
// few tiles (S::kM, S::kN) as can form one. The kernel's schedule counts the tiles of the rectangle that the
// triangle folds into (lower_triangle.cuh).
template <class S>
using TrianglePlaces = LowerTriangle<std::lcm(S::kM, S::kN) / S::kM, std::lcm(S::kM, S::kN) / S::kN>;

// The first row and column of a tile (S::kM, S::kN). With tiles of (128, 256), the tiles of a band that are
// in flight read about as many rows of A as columns of B.
template <class S>
struct TileOrigin {
  int batch, row, column;

  template <class Acc>
  __device__ __forceinline__ TileOrigin(int tile, const Schedule<Acc>& g) {
    TilePlace<16> place(tile, g.tiles_m, g.tiles_n);
    if constexpr (S::kLower) TrianglePlaces<S>{g.tiles_m, g.tiles_n}.unfold(place.row, place.column);
    batch = place.batch, row = place.row * S::kM, column = place.column * S::kN;
  }
};

// Returns whether this block finishes the tile. If so, it has added the partial sums of the other blocks; if
// not, it has stored its own for the block that does.
template <class S, class Acc>
__device__ __forceinline__ bool finishes(const Schedule<Acc>& g, Acc (&sum)[S::kSums], const Part& part,
                                         int warpgroup) {
  using Sums = PartialSums<S::kConsumerThreads, 4>;
  constexpr int kBlockSums = S::kSums * S::kConsumerThreads;
  if (part.end != g.work.steps) {
    hand_over<Sums>(g, sum, kBlockSums, int(blockIdx.x) * S::kConsumers + warpgroup, warp_index() % 4 == 0,
                    [&] { named_barrier(1 + warpgroup, 128); });
    return false;
  }
  if (part.first != 0) collect<Sums>(g, sum, part, kBlockSums, S::kConsumers, warpgroup);
  return true;
}

}  // namespace fastgemm::FASTGEMM_TARGET
