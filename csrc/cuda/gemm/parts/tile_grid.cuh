// Which tile of C a block computes: the grid of tiles, row by row, and the order in bands that keeps the
// operands of neighbouring blocks in L2.
#pragma once

#include <stdexcept>
#include <string>

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Block tiles are numbered along the rows of C in blockIdx.x, which counts to 2^31 - 1 (y ends at 65535).
struct TileGrid {
  dim3 grid;
  unsigned tiles_n;  // in a row of C
};

inline TileGrid tile_grid(int64_t m, int64_t n, int bm, int bn, int batch) {
  const int64_t tiles_n = ceil_div(n, bn), tiles = ceil_div(m, bm) * tiles_n;
  if (tiles > INT32_MAX)
    throw std::length_error("fastgemm: a result of " + std::to_string(m) + " x " + std::to_string(n) +
                            " takes " + std::to_string(tiles) + " blocks, more than a grid has");
  return {dim3(unsigned(tiles), 1, unsigned(batch)), unsigned(tiles_n)};
}

// The first row and column of this block's tile of C.
struct BlockTile {
  int64_t row, col;
};

template <int BM, int BN>
__device__ __forceinline__ BlockTile block_tile(unsigned tiles_n) {
  return {int64_t(blockIdx.x / tiles_n) * BM, int64_t(blockIdx.x % tiles_n) * BN};
}

// Where tile number `tile` of a batch lies. Tiles are counted in bands of some tile rows, down each column of
// a band, so that the tiles computed at a time share rows of A and columns of B in the L2 cache:
//
//   0  2  4 |     bands of 2 rows, 3 columns of tiles
//   1  3  5 |
//   6  8 10
//   7  9 11
struct Place {
  int batch, row, column;  // of C, in tiles

  __device__ __forceinline__ Place(int tile, int tiles_m, int tiles_n, int rows_of_band = 8) {
    batch = tile / (tiles_m * tiles_n);
    const int within = tile - batch * tiles_m * tiles_n, band = within / (rows_of_band * tiles_n);
    const int rows = min(tiles_m - band * rows_of_band, rows_of_band);
    const int in_band = within - band * rows_of_band * tiles_n;
    column = in_band / rows;
    row = band * rows_of_band + in_band - column * rows;
  }
};

// Calls body(place) for every tile that this block of a persistent grid computes.
template <class Body>
__device__ __forceinline__ void for_each_tile(int batch, int tiles_m, int tiles_n, int rows_of_band,
                                              Body&& body) {
  const int tiles = batch * tiles_m * tiles_n;
  for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x))
    body(Place(tile, tiles_m, tiles_n, rows_of_band));
}

}  // namespace fastgemm::FASTGEMM_TARGET
