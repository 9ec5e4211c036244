// A store: the sums of a tile go to C in whole lines, whichever way the tile lies. Contract: after all warps
// of a warpgroup have their sums, stage() writes them to shared memory, and store_staged() applies the
// epilogue to neighbours in a row of C, rounds once, and stores 16 bytes at a time. A barrier of the
// warpgroup lies before, between and after.
//
//   registers: pairs of neighbours     staged, float32             C: rows of X               C^T: rows of Y
//   x = lane / 4 | y y                 a row for each row of C     +-- y -->  16 bytes        +-- x -->
//                                      and 4 to 8 words between    x  (a lane)                y
//
// Rows are so far apart that neither the writes nor the reads of a warp meet in a bank: the 8 words between
// rows of pairs, and the 4 between columns that are written as single words.
#pragma once

#include "cuda/gemm/parts/fused_epilogue.cuh"
#include "cuda/gemm/parts/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The staged sums (64 * BLOCKS, COLUMNS) of a warpgroup. `turned`: the columns are rows of C.
template <int BLOCKS, int COLUMNS, bool turned>
struct StagedTile {
  static constexpr int kRows = turned ? COLUMNS : 64 * BLOCKS, kColumns = turned ? 64 * BLOCKS : COLUMNS;
  static constexpr int kPitch = turned ? kColumns + 4 : 8 * (COLUMNS / 8 | 1);
  static constexpr int kBytes = 4 * kRows * kPitch;

  // Each thread writes its sums: pairs sum[block][i], sum[block][i + 1] in the layout of wgmma.
  template <class Acc>
  __device__ __forceinline__ static void stage(Acc* to, const Acc (&sum)[BLOCKS][COLUMNS / 2]) {
    const Position first = WgmmaLayout<float>::c(int(threadIdx.x) % 128, 0);  // the same for all types
    Acc* const mine = to + (turned ? first.column * kPitch + first.row : first.row * kPitch + first.column);
    FASTGEMM_UNROLL
    for (int block = 0; block < BLOCKS; ++block) {
      FASTGEMM_UNROLL
      for (int i = 0; i < COLUMNS / 2; i += 2) {
        const int x = 64 * block + i % 4 / 2 * 8, y = i / 4 * 8;
        if constexpr (turned)
          mine[y * kPitch + x] = sum[block][i], mine[(y + 1) * kPitch + x] = sum[block][i + 1];
        else
          store_vector(mine + x * kPitch + y, Vector<Acc, 2>{{sum[block][i], sum[block][i + 1]}});
      }
    }
  }

  // The threads of the warpgroup store the part of C that begins at (row0, column0).
  template <class Out, class T>
  __device__ __forceinline__ static void store(const Accumulator<T>* from, const Gemm<T>& g,
                                               const Epilogue& epilogue, ResultVectors vectors, int row0,
                                               int column0) {
    using Acc = Accumulator<T>;
    constexpr int kUnit = kPer16Bytes<Out>, kUnits = kColumns / kUnit;
    static_assert(kColumns % kUnit == 0);
    const int rows = inside(g.m, row0, kRows), columns = inside(g.n, column0, kColumns);
    FASTGEMM_NO_UNROLL
    for (int i = int(threadIdx.x) % 128; i < rows * kUnits; i += 128) {
      const int row = i / kUnits, column = i % kUnits * kUnit;
      if (column >= columns) continue;
      Acc sum[kUnit];
      FASTGEMM_UNROLL
      for (int e = 0; e < kUnit; e += 4) {
        const auto four = load_vector<Vector<Acc, 4>>(from + row * kPitch + column + e);
        FASTGEMM_UNROLL
        for (int j = 0; j < 4; ++j) sum[e + j] = four[j];
      }
      if constexpr (std::is_same_v<Acc, float>) {
        if (epilogue.asked()) {
          store_row_finished<Out, kUnit>(epilogue, g.result, vectors, row0 + row, column0 + column, sum,
                                         columns - column);
          continue;
        }
      }
      store_row_as<Out, kUnit>(g.result, vectors, row0 + row, column0 + column, sum, columns - column);
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
