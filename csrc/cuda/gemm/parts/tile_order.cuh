// The order in which blocks compute the tiles of C: in bands of BAND tile rows, down each column of a band,
// so that the tiles under way at a time share rows of A and columns of B in L2.
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

// The tiles of a triangle: those that reach the diagonal or lie below it. Squares of ROWS x COLUMNS tiles form a
// triangle of S (S + 1) / 2; folded it is a rectangle, whose bands are those above:
//
//   0
//   1 1           2 2 2 1 1     S = 4. Row i of the rectangle is row S / 2 + i of the triangle, followed by
//   2 2 2    ->   3 3 3 3 0     row S / 2 - 1 - i backwards.
//   3 3 3 3
template <int ROWS, int COLUMNS>
struct LowerTriangle {
  int tiles_m, tiles_n;  // of the rectangle

  // Of a matrix of so many tiles.
  __host__ __device__ __forceinline__ static LowerTriangle of(int tiles_m, int tiles_n) {
    const int down = (tiles_m + ROWS - 1) / ROWS, across = (tiles_n + COLUMNS - 1) / COLUMNS;
    const int squares = down < across ? across : down;
    return {(squares - squares / 2) * ROWS, (squares + 1 - squares % 2) * COLUMNS};
  }

  // The tile (row, column) of the rectangle as one of the triangle. It may lie outside the matrix, or above the
  // diagonal within a square.
  __device__ __forceinline__ void unfold(int& row, int& column) const {
    const int i = row / ROWS, j = column / COLUMNS, width = tiles_n / COLUMNS, half = width / 2;
    const bool goes_on = j <= half + i;
    row += ((goes_on ? half + i : half - 1 - i) - i) * ROWS;
    if (!goes_on) column += (width - 1 - 2 * j) * COLUMNS;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
