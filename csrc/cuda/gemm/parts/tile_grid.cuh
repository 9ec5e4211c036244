// Which tile of C (counted along the rows of C) a block computes, and which part of a tile a thread computes.
#pragma once

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// blockIdx.x counts the tiles. It may go up to 2^31 - 1, while blockIdx.y ends at 65535.
struct TileGrid {
  dim3 grid;
  unsigned tiles_n;  // in a row of C
};
// Throws std::length_error for more tiles than blockIdx.x can count.
TileGrid tile_grid(int64_t m, int64_t n, int bm, int bn, int batch);

// The first row and column of this block's tile of C.
struct BlockTile {
  int64_t row, col;
};

template <int BM, int BN>
__device__ __forceinline__ BlockTile block_tile(unsigned tiles_n) {
  return {int64_t(blockIdx.x / tiles_n) * BM, int64_t(blockIdx.x % tiles_n) * BN};
}

// 256 threads are 16 x 16, and a warp is 4 x 8 of them. Eight lanes side by side fill a 32-byte sector of C
// with 4-byte results. A warp reads 4 + 8 values of the tiles, where 1 x 32 lanes would read 1 + 32.
struct ThreadPlace {
  int m, n;
};

__device__ __forceinline__ ThreadPlace thread_place() {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  return {warp / 2 * 4 + lane / 8, warp % 2 * 8 + lane % 8};
}

// How many of `tile` positions that begin at `first` lie below `extent`.
__device__ __forceinline__ int inside(int64_t extent, int64_t first, int tile) {
  return int(min(extent - first, int64_t(tile)));
}

}  // namespace fastgemm::FASTGEMM_TARGET
