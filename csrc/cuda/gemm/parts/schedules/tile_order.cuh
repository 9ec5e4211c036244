// The order in which blocks compute the tiles of C: in bands of BAND tile rows, down each column of a band.
// The tiles that are computed at the same time then form a block of about BAND tile rows, and read the same
// rows of A and columns of B, which L2 holds.
//
//   0  2  4 |     BAND = 2, 4 x 3 tiles
//   1  3  5 |
//   6  8 10
//   7  9 11
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Where tile number `tile` of a batch lies, in tiles.
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

}  // namespace fastgemm::FASTGEMM_TARGET
