// The order of tiles where only the lower triangle of C is computed (GemmProblem::triangle).
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The tiles that the diagonal crosses, and those below it. S (S + 1) / 2 squares of ROWS x COLUMNS tiles form
// the triangle. The triangle is folded into a rectangle, whose tiles are numbered in bands like those of a
// whole C (TilePlace):
//
//   0
//   1 1           2 2 2 1 1     S = 4. Row i of the rectangle is row S / 2 + i of the triangle, followed by
//   2 2 2    ->   3 3 3 3 0     row S / 2 - 1 - i backwards.
//   3 3 3 3
template <int ROWS, int COLUMNS>
struct LowerTriangle {
  int tiles_m, tiles_n;  // the size of the rectangle

  // The rectangle for a matrix of tiles_m x tiles_n tiles.
  __host__ __device__ __forceinline__ static LowerTriangle of(int tiles_m, int tiles_n) {
    const int down = (tiles_m + ROWS - 1) / ROWS, across = (tiles_n + COLUMNS - 1) / COLUMNS;
    const int squares = down < across ? across : down;
    return {(squares - squares / 2) * ROWS, (squares + 1 - squares % 2) * COLUMNS};
  }

  // Turns the tile (row, column) of the rectangle into the tile of the triangle. That may lie outside the
  // matrix, or above the diagonal within a square.
  __device__ __forceinline__ void unfold(int& row, int& column) const {
    const int i = row / ROWS, j = column / COLUMNS, width = tiles_n / COLUMNS, half = width / 2;
    const bool goes_on = j <= half + i;
    row += ((goes_on ? half + i : half - 1 - i) - i) * ROWS;
    if (!goes_on) column += (width - 1 - 2 * j) * COLUMNS;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
