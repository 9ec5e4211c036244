// The order in which a persistent grid computes the tiles of C, so that those under way at a time share rows
// of A and columns of B in L2. Block i computes tiles i, i + gridDim.x, ...
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

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
