// A schedule for products of few rows, in which the bits of a row must not depend on the other rows. So one
// block computes each sum, from the first k to the last. Block i takes the tiles i, i + gridDim.x, and so on.
// Contract: place_of(tile) is the tile's place in C.
#pragma once

#include "core/min_max.h"
#include "cuda/device/launch.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {

// The tiles (kDecodeRows, columns) of a batch. Consecutive blocks have the same columns, so that they share B
// in L2.
struct DecodeTiles {
  int tiles_m, tiles_n, count;  // tiles per matrix, and in all
  int rows;  // rows in a box of A (invariant.cu): C's rows, rounded up to 8, at most a tile's

  struct Place {
    int batch, row, column;
  };
  template <int columns>
  __device__ __forceinline__ Place place_of(int tile) const {
    const int column = tile / tiles_m;
    return {column / tiles_n, tile % tiles_m * plans::kDecodeRows, column % tiles_n * columns};
  }
  int blocks() const { return std::min(count, multiprocessors()); }
};
inline DecodeTiles decode_tiles(int batch, int64_t m, int64_t n, int columns) {
  const int tiles_m = int(ceil_div(m, plans::kDecodeRows)), tiles_n = int(ceil_div(n, columns));
  return {tiles_m, tiles_n, batch * tiles_m * tiles_n,
          int(std::min<int64_t>(plans::kDecodeRows, ceil_div(m, 8) * 8))};
}

}  // namespace fastgemm::FASTGEMM_TARGET
