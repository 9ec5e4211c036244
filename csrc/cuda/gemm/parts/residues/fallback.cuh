// The tiles that are not computed by residues, because these would not be accurate enough.
#pragma once

#include "cuda/gemm/parts/problem.cuh"
#include "cuda/gemm/parts/residues/selection.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

// Says to a kernel which of its tiles it has to compute. Its tiles divide those of the selection, and it
// computes a panel of C that begins at (row0, column0).
struct FallbackTiles {
  static constexpr bool kEvery = false;
  Selection selection;
  int row0 = 0, column0 = 0;

  // Whether the tile that begins at this row and column of the panel is computed by residues.
  __device__ __forceinline__ bool skips(int row, int column) const {
    return selection.takes((row0 + row) / kTileM, (column0 + column) / kTileN);
  }
  FallbackTiles panel(int64_t row, int64_t column) const {
    return {selection, row0 + int(row), column0 + int(column)};
  }
  // Whether any tile with this row of A, or this column of B, has to be computed. The threads of a block
  // share the search, so the answer is the OR of theirs. `others` is the number of the panel's columns or
  // rows.
  __device__ __forceinline__ bool finds_tile(bool of_a, int at, int others) const {
    bool found = false;
    const int step = of_a ? kTileN : kTileM;
    for (int64_t i = int64_t(threadIdx.x) * step; i < int64_t{others} + step; i += int64_t{blockDim.x} * step)
      if (const int other = int(min(i, int64_t{others} - 1)); !(of_a ? skips(at, other) : skips(other, at)))
        found = true;
    return found;
  }
};

// Computes the tiles of a product that the selection does not take: float64 by float64 tensor cores
// (dmma.cu), float32 by planes of bf16 (bf16x6.cu), for k up to 2^14 and with any epilogue.
void multiply_fallback(const Gemm<double>&, const Selection&, const Epilogue& none, Context&);
void multiply_fallback(const Gemm<float>&, const Selection&, const Epilogue&, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET::residues
