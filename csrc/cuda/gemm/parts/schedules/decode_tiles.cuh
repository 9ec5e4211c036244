// A schedule for products of few rows, in which the bits of a row must not depend on the other rows. So one
// block computes each sum, from the first k to the last. Block i takes the tiles i, i + gridDim.x, and so on.
// Contract: place_of(tile) is the tile's place in C.
#pragma once

#include "core/min_max.h"
#include "cuda/device/launch.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::plans {

// `invariant` for few rows (fast/invariant.cu): tiles of (64, columns), one block each. The width is chosen
// so that the multiprocessor with the most columns has as few as possible, because it reads their weights at
// its share of the bandwidth. Where C has more such tiles than there are multiprocessors, wgmma_specialized
// computes it.
inline constexpr int kDecodeRows = 64;
inline int decode_width(std::initializer_list<int> widths, int64_t batch, int64_t m, int64_t n,
                        int64_t processors) {
  const int64_t rows = batch * ceil_div(m, kDecodeRows);
  return fastest(widths,
                 [&](int columns) { return ceil_div(rows * ceil_div(n, columns), processors) * columns; });
}
inline int decode_columns(int64_t batch, int64_t m, int64_t n, bool along_k, int64_t processors) {
  return along_k ? decode_width({128, 112, 96, 64, 32, 16}, batch, m, n, processors)
                 : decode_width({128, 64}, batch, m, n, processors);
}
inline bool takes_decode(int64_t batch, int64_t m, int64_t n, int64_t processors) {
  return m <= kDecodeRows || batch * ceil_div(m, kDecodeRows) * ceil_div(n, 128) <= processors;
}

// `invariant` for float32 and few rows (fast/decode_planes.cu). It cuts the weights into planes again for
// every 64 rows. bf16x6 cuts them only once, but writes the planes to memory. From some 256 rows on that
// takes less time.
inline int plane_decode_columns(int64_t batch, int64_t m, int64_t n, bool along_k, int64_t processors) {
  return along_k ? decode_width({64, 56, 48, 32, 16}, batch, m, n, processors)
                 : decode_width({64, 32}, batch, m, n, processors);
}
inline bool takes_plane_decode(int64_t m, int64_t k) {
  return m <= 4 * kDecodeRows && plane_segments(ceil_div(k, kPlaneStage), kBf16x6) == 1;
}

}  // namespace fastgemm::plans

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
