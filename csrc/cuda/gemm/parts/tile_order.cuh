// The order in which blocks compute the tiles of C (threadblock rasterization): those under way at a time
// share rows of A and columns of B in L2.
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The coordinates of a tile of a batch, in tiles. Tiles are numbered in bands of BAND tile rows, down each
// column of a band:
//
//   0 2 4      BAND = 2, 5 x 3 tiles
//   1 3 5
//   6 8 10
//   7 9 11
//   12 13 14
template <int BAND>
struct TilePlace {
  int batch, row, column;

  __device__ __forceinline__ TilePlace(int tile, int tiles_m, int tiles_n) {
    batch = tile / (tiles_m * tiles_n);
    const int within = tile - batch * tiles_m * tiles_n, band = within / (BAND * tiles_n);
    const int rows = min(tiles_m - band * BAND, BAND), in_band = within - band * BAND * tiles_n;
    column = in_band / rows;
    row = band * BAND + in_band - column * rows;
  }
};

// Calls body(place) for tiles blockIdx.x, blockIdx.x + gridDim.x, ... of a persistent grid.
template <int BAND, class Body>
__device__ __forceinline__ void for_each_tile(int batch, int tiles_m, int tiles_n, Body&& body) {
  const int tiles = batch * tiles_m * tiles_n;
  for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x))
    body(TilePlace<BAND>(tile, tiles_m, tiles_n));
}

}  // namespace fastgemm::FASTGEMM_TARGET
