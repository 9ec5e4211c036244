// The tiles that are not computed by residues.
#pragma once

#include "cuda/gemm/parts/problem.cuh"
#include "cuda/gemm/parts/residues/selection.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

// The same for kernels whose tiles divide those of a selection: of a panel of C that begins at `row0` and
// `column0`.
struct Rest {
  static constexpr bool kEvery = false;
  Selection selection;
  int row0 = 0, column0 = 0;

  // Whether the tile that begins at this row and column of the panel is computed by residues.
  __device__ __forceinline__ bool leaves(int row, int column) const {
    return selection.takes((row0 + row) / kTileM, (column0 + column) / kTileN);
  }
  Rest panel(int64_t row, int64_t column) const {
    return {selection, row0 + int(row), column0 + int(column)};
  }
  // Whether this thread, of all of a block, finds a tile that is not left, among those of a row of A or of a
  // column of B. `others` are the columns or rows of the panel.
  __device__ __forceinline__ bool finds_tile(bool of_a, int at, int others) const {
    bool found = false;
    const int step = of_a ? kTileN : kTileM;
    for (int64_t i = int64_t(threadIdx.x) * step; i < int64_t{others} + step; i += int64_t{blockDim.x} * step)
      if (const int other = int(min(i, int64_t{others} - 1)); !(of_a ? leaves(at, other) : leaves(other, at)))
        found = true;
    return found;
  }
};

// Computes the tiles of a product that the selection leaves: float64 by its own tensor cores (dmma.cu),
// float32 by planes of bf16 (bf16x6.cu), for k up to 2^14 and with any epilogue.
void multiply_rest(const Gemm<double>&, const Selection&, const Epilogue& none, Context&);
void multiply_rest(const Gemm<float>&, const Selection&, const Epilogue&, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET::residues
