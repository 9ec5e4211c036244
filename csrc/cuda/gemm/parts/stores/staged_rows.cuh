// A store: the sums of a tile go to C in whole lines, whichever way the tile lies. Contract: when all warps
// of a warpgroup have read the last stage, stage() writes their sums to shared memory, and after a barrier
// store() writes them to C, 16 bytes a thread.
//
//   registers: pairs of neighbours     staged in shared memory     C: rows of X         C^T: rows of Y
//   x = lane / 4 | y y                 a row for each row of C     +-- y -->            +-- x -->
//                                      with a gap behind           x                    y
//
// RoundedTile rounds plain results to 16 bits before they are staged, which halves the bytes. SummedTile
// stages sums of 32 bits. A thread then applies alpha, c, the bias and the activation to neighbours in a row
// of C, so that it reads c in vectors, too. The gaps spread rows over the banks, so that neither writes nor
// reads wait for each other (RoundedTile), or only reads by two (SummedTile).
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The results of a warpgroup's sums (64 * BLOCKS, COLUMNS). `turned`: their columns are rows of C.
template <int BLOCKS, int COLUMNS, bool turned>
struct StagedTile {
  static constexpr int kRows = turned ? COLUMNS : 64 * BLOCKS, kColumns = turned ? 64 * BLOCKS : COLUMNS;
};

template <class Out, int BLOCKS, int COLUMNS, bool turned>
struct RoundedTile : StagedTile<BLOCKS, COLUMNS, turned> {
  using Base = StagedTile<BLOCKS, COLUMNS, turned>;
  static constexpr int kPitch = 8 * (Base::kColumns / 8 | 1), kBytes = 2 * Base::kRows * kPitch;

  // Each stmatrix writes up to four tiles of 8 x 8: two below each other, and those of the next 8 columns.
  __device__ __forceinline__ static void stage(unsigned char* staged,
                                               const float (&sum)[BLOCKS][COLUMNS / 2]) {
    const int lane = fresh_lane(), x = int(threadIdx.x) % 128 / 32 * 16 + lane / 8 % 2 * 8, y = lane / 16 * 8;
    Out* const to =
        reinterpret_cast<Out*>(staged) + (turned ? (y + lane % 8) * kPitch + x : (x + lane % 8) * kPitch + y);
    FASTGEMM_UNROLL
    for (int block = 0; block < BLOCKS; ++block) {
      FASTGEMM_UNROLL
      for (int i = 0; i < COLUMNS / 2; i += 8) {
        Out* const here = to + (turned ? i * 2 * kPitch + 64 * block : 64 * block * kPitch + i * 2);
        const auto pair = [&](int j) { return round_pair<Out>(sum[block][i + j], sum[block][i + j + 1]); };
        if (i + 8 <= COLUMNS / 2)
          store_matrices<4, turned>(here, {pair(0), pair(2), pair(4), pair(6)});
        else
          store_matrices<2, turned>(here, {pair(0), pair(2)});
      }
    }
  }

  // Stores the part of C that begins at (row0, column0).
  template <class T>
  __device__ __forceinline__ static void store(const unsigned char* staged, const Gemm<T>& g,
                                               ResultVectors vectors, int row0, int column0) {
    constexpr int kUnits = Base::kColumns / 8, kAll = Base::kRows * kUnits, kAtOnce = 4;
    const int rows = inside(g.m, row0, Base::kRows), columns = inside(g.n, column0, Base::kColumns);
    Out* const out = static_cast<Out*>(g.result.out) + row0 * g.result.row_stride + column0;
    FASTGEMM_NO_UNROLL
    for (int first = int(threadIdx.x) % 128; first < kAll; first += 128 * kAtOnce) {
      Vector<Out, 8> unit[kAtOnce];
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce; ++j)
        if (const int i = first + 128 * j; i < kAll)
          unit[j] = load_vector<Vector<Out, 8>>(reinterpret_cast<const Out*>(staged) + i / kUnits * kPitch +
                                                i % kUnits * 8);
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + 128 * j, row = i / kUnits, column = i % kUnits * 8;
        if (i >= kAll || row >= rows || column >= columns) continue;
        Out* const to = out + row * g.result.row_stride + column;
        if (vectors.out && column + 8 <= columns) {
          store_vector_whole(to, unit[j]);
          continue;
        }
        FASTGEMM_UNROLL
        for (int e = 0; e < 8; ++e)
          if (column + e < columns) to[e] = unit[j][e];
      }
    }
  }
};

template <int BLOCKS, int COLUMNS, bool turned>
struct SummedTile : StagedTile<BLOCKS, COLUMNS, turned> {
  using Base = StagedTile<BLOCKS, COLUMNS, turned>;
  static constexpr int kColumns = Base::kColumns, kRows = Base::kRows;
  static constexpr int kPitch = turned ? kColumns + 4 : 8 * (COLUMNS / 8 | 1);
  static constexpr int kBytes = 4 * kRows * kPitch;

  // Each thread writes its sums: pairs sum[block][i], sum[block][i + 1] in the layout of wgmma.
  template <class Acc>
  __device__ __forceinline__ static void stage(unsigned char* staged, const Acc (&sum)[BLOCKS][COLUMNS / 2]) {
    Acc* const to = reinterpret_cast<Acc*>(staged);
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

  // Applies the epilogue, and stores the part of C that begins at (row0, column0).
  template <class Out, class T>
  __device__ __forceinline__ static void store(const unsigned char* staged, const Gemm<T>& g,
                                               const Epilogue& epilogue, ResultVectors vectors, int row0,
                                               int column0) {
    using Acc = Accumulator<T>;
    const Acc* const from = reinterpret_cast<const Acc*>(staged);
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
