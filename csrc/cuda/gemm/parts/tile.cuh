// The copy of an operand's tile into shared memory by all threads of a block, element by element. Tiles hold
// accumulators: an element is widened once, on its way in, and not again by each thread that reads it, so
// that the inner loop is the same for every element type.
#pragma once

#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Copies the tile of `from` at (first_row, first_col) to shared memory: element (i, j) to tile[i * PITCH +
// j], zero where it lies outside rows x cols. Consecutive threads walk along the direction that is contiguous
// in memory, whichever it is, so that every layout is read in whole sectors. All threads of the block call
// it.
template <int ROWS, int COLS, int PITCH, int THREADS, class T>
__device__ __forceinline__ void load_tile(Accumulator<T>* tile /* (ROWS, COLS) */, const Operand<T>& from,
                                          int64_t first_row, int64_t first_col, int64_t rows, int64_t cols) {
  static_assert(THREADS % ROWS == 0 && THREADS % COLS == 0 && ROWS * COLS % THREADS == 0);
  const bool along_row = from.col_stride == 1;
  const int t = int(threadIdx.x);
  int i = along_row ? t / COLS : t % ROWS, j = along_row ? t % COLS : t / ROWS;
  const int step_i = along_row ? THREADS / COLS : 0, step_j = along_row ? 0 : THREADS / ROWS;
  const int inside_rows = inside(rows, first_row, ROWS), inside_cols = inside(cols, first_col, COLS);
  const T* p = from.at(first_row + i, first_col + j);
  const int64_t step = step_i * from.row_stride + step_j * from.col_stride;
  FASTGEMM_UNROLL
  for (int e = 0; e < ROWS * COLS / THREADS; ++e, i += step_i, j += step_j, p += step)
    tile[i * PITCH + j] = i < inside_rows && j < inside_cols ? widen(*p) : Accumulator<T>(0);
}

}  // namespace fastgemm::FASTGEMM_TARGET
