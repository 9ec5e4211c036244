// Which parts of which tiles a persistent block of level 6 computes, and in what order.
//
// Whole waves of tiles are dealt out tile by tile. The tiles of the last wave, where it is far from full, are
// cut into equal shares as in level 5 (parts/stream_k.cuh); of one wave only, because blocks that work on
// different k find less of each other's operands in L2. At 8192 on 132 multiprocessors, 15.5 waves of
// 128 x 256 tiles: 2 % faster.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"
#include "cuda/gemm/parts/stream_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kChunk = 4;  // stages: at least that many of a tile follow each other in a block

template <class Acc>
struct Schedule {
  int tiles_m, tiles_n;
  int stages;       // of a tile, at least kChunk
  StreamK work;     // in chunks
  Acc* partials;    // a block's sums of the tile that it could not finish
  uint32_t* flags;  // [block][warpgroup], 1: they are there

  // A tile's last chunk has what is left, up to 7 stages.
  __device__ __forceinline__ int stages_of(const Part& part) const {
    return (part.end == work.steps ? stages : part.end * kChunk) - part.first * kChunk;
  }
};

// The first row and column of a tile. Tiles are numbered in bands of 16 tile rows, column by column: of 132
// tiles at a time (128, 256) as many rows of A are read as columns of B.
template <class S>
struct TilePlace {
  int batch, row, column;

  template <class Acc>
  __device__ __forceinline__ TilePlace(int tile, const Schedule<Acc>& g) {
    constexpr int kBand = 16;
    batch = tile / (g.tiles_m * g.tiles_n);
    const int within = tile - batch * g.tiles_m * g.tiles_n, band = within / (kBand * g.tiles_n);
    const int rows = min(g.tiles_m - band * kBand, kBand), in_band = within - band * kBand * g.tiles_n;
    column = in_band / rows * S::kN;
    row = (band * kBand + in_band % rows) * S::kM;
  }
};

// Sums lie in the workspace as [four registers][thread]: every access is 16 bytes a lane and full lines.
template <class S, class Acc>
__device__ __forceinline__ Acc* partials_of(const Schedule<Acc>& g, int block) {
  return g.partials + int64_t(block) * S::kM * S::kN + threadIdx.x * 4;
}

template <class S, class Acc>
__device__ __forceinline__ void hand_over(const Schedule<Acc>& g, const Acc (&sum)[S::kSums], int warpgroup) {
  Acc* const to = partials_of<S>(g, int(blockIdx.x));
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kSums; i += 4)
    store_vector(to + i * S::kConsumerThreads, Vector16<Acc>{{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]}});
  named_barrier(1 + warpgroup, 128);
  if (warp_index() % 4 == 0) store_release(&g.flags[int(blockIdx.x) * S::kConsumers + warpgroup], 1);
}

template <class S, class Acc>
__device__ __forceinline__ void collect(const Schedule<Acc>& g, Acc (&sum)[S::kSums], const Part& part,
                                        int warpgroup) {
  const int64_t tile_begin = int64_t(part.tile - g.work.whole_tiles) * g.work.steps;
  int block = int(blockIdx.x);
  do {
    --block;
    while (__any_sync(0xffffffffu, load_acquire(&g.flags[block * S::kConsumers + warpgroup]) == 0))
      spin_wait();
    const Acc* const from = partials_of<S>(g, block);
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSums; i += 4) {
      const auto v = load_vector<Vector16<Acc>>(from + i * S::kConsumerThreads);
      FASTGEMM_UNROLL
      for (int j = 0; j < 4; ++j) sum[i + j] += v[j];
    }
  } while (g.work.begin(block) > tile_begin);
}

// Shares the last wave where that saves more than it costs: the sums of a tile's other blocks are added one
// after the other.
inline StreamK plan_last_wave(int64_t tiles, int chunks, int blocks) {
  const int64_t waves = tiles / blocks, left = tiles % blocks;
  constexpr double kHandOver = 2, kCollect = 1;  // chunks
  const bool pays =
      left > 0 && double(left) * chunks / blocks + kHandOver + kCollect * blocks / double(left) < chunks;
  StreamK s;
  s.whole_tiles = int(pays ? waves * blocks : tiles);
  s.steps = chunks;
  const int64_t shared = (tiles - s.whole_tiles) * chunks;
  s.share = shared / blocks;
  s.longer = int(shared % blocks);
  return s;
}

}  // namespace fastgemm::FASTGEMM_TARGET
