// The work of a warp in every row of level 5. A warp multiplies panels (panels.cuh) that are in shared
// memory: for each k, a lane adds the outer product of TM values of A and TN of B to TM x TN sums in
// registers. Then the warp stores its sums to C through shared memory of its own, the slab.
#pragma once

#include "cuda/device/sync.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/panels.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The default of WarpTile::store()'s `finish`: leaves the sums as they are.
struct AsSummed {
  template <class Out, class Row>
  __device__ __forceinline__ void operator()(Row&&) const {}
};

// A warp is LanesM x LanesN lanes, 8 x 4 by default, each with TM x TN sums. A lane's rows come in runs of 16
// bytes (4 rows of 4-byte words), and the runs of the LanesM lanes lie side by side:
//
//   rows of the warp tile, TM = 8   |   0..3   |   4..7   | ... |  28..31  |  32..35  | ...
//   belong to lane_m                |     0    |     1    | ... |     7    |     0    | ...
//
// So the 16-byte loads of a warp read one contiguous part of a panel's row. The same holds for columns.
template <class Word, int TM, int TN, bool dot4_, int LanesM = 8>
struct WarpTile {
  static constexpr int kLanesM = LanesM, kLanesN = 32 / LanesM, kRun = kPer16Bytes<Word>;
  static constexpr int kM = kLanesM * TM, kN = kLanesN * TN;
  static_assert(TM % kRun == 0 && TN % kRun == 0, "fragments are loaded 16 bytes at a time");
  static_assert(kN % 32 == 0, "a warp stores whole lines");

  struct alignas(16) Fragment {  // what one k step needs
    Word a[TM], b[TN];
  };
  Word sum[TM][TN];

  // The lane's place. lane_n also depends on lane_m, so that four neighbouring lanes have four addresses in A
  // and four in B. Such a load returns its data over 4 cycles. If lanes shared addresses (a broadcast), it
  // would return them in 2 cycles, and take more of the issue slots that multiply-adds need.
  static __device__ __forceinline__ int lane_m() { return int(threadIdx.x) % kLanesM; }
  static __device__ __forceinline__ int lane_n() {
    return (int(threadIdx.x) % 32 / kLanesM + lane_m()) % kLanesN;
  }
  static __device__ __forceinline__ int row(int i) {
    return i / kRun * kRun * kLanesM + lane_m() * kRun + i % kRun;
  }
  static __device__ __forceinline__ int column(int j) {
    return j / kRun * kRun * kLanesN + lane_n() * kRun + j % kRun;
  }

  // a and b point into row k of the panels in shared memory, at row(0) and at column(0).
  static __device__ __forceinline__ void load(Fragment& f, const Word* a, const Word* b) {
    FASTGEMM_UNROLL
    for (int i = 0; i < TM; i += kRun) store_vector(&f.a[i], load_vector<Vector16<Word>>(a + i * kLanesM));
    FASTGEMM_UNROLL
    for (int j = 0; j < TN; j += kRun) store_vector(&f.b[j], load_vector<Vector16<Word>>(b + j * kLanesN));
  }

  // Sets all sums to zero. `zero` is an argument of the kernel, so that nvcc does not know its value. If it
  // did, it would write the zeros four registers at a time. Then sums would have to lie in aligned groups of
  // four registers, in the same register banks as values of B, and multiply-adds would wait for operands.
  __device__ __forceinline__ void clear(Word zero) {
    FASTGEMM_UNROLL
    for (int i = 0; i < TM; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < TN; ++j) sum[i][j] = zero;
    }
  }

  // Row by row, forward in even rows and backward in odd ones. So each multiply-add has an operand in common
  // with the one before it, which the operand cache holds: an element of A, or of B where the row changes.
  __device__ __forceinline__ void multiply(const Fragment& f) {
    FASTGEMM_UNROLL
    for (int i = 0; i < TM; ++i) {
      FASTGEMM_UNROLL
      for (int step = 0; step < TN; ++step) {
        const int j = i % 2 ? TN - 1 - step : step;
        if constexpr (dot4_)
          sum[i][j] = dot4(f.a[i], f.b[j], sum[i][j]);
        else
          sum[i][j] = multiply_add(f.a[i], f.b[j], sum[i][j]);
      }
    }
  }

  // The tile passes through the slab in pieces of kSlabRows rows: two rows of each lane. From there the warp
  // writes 32 neighbouring elements of C at a time, which needs no alignment. The stores to the slab are
  // volatile, so that nvcc does not merge four of them into one of 16 bytes: then the sums would have to lie
  // in aligned groups of four registers in the main loop, too. With a pitch of kN (a multiple of 32) the 8
  // lanes with the same lane_n would write to one bank. With kN + 1, at most 2 lanes of a warp share a bank.
  static constexpr int kSlabRows = 2 * kLanesM, kSlabPitch = kN + 1, kSlabWords = kSlabRows * kSlabPitch;
  // finish.operator()<Out>(row_of) is called for each piece, and may change the sums in the slab before they
  // are stored as elements of Out. Line i of the slab belongs to row row_of(i) of C.
  template <class Acc, class Finish = AsSummed>
  __device__ __forceinline__ void store(const Output<Acc>& out, Word* slab, int64_t row0, int64_t column0,
                                        int64_t m, int64_t n, const Finish& finish = {}) const {
    const int lane = int(threadIdx.x) % 32;
    volatile Word* mine = slab + lane_m() * kSlabPitch;
    FASTGEMM_UNROLL
    for (int i = 0; i < TM; i += 2) {
      __syncwarp();
      FASTGEMM_UNROLL
      for (int j = 0; j < TN; ++j) {
        mine[column(j)] = sum[i][j];
        mine[kLanesM * kSlabPitch + column(j)] = sum[i + 1][j];
      }
      __syncwarp();
      out.with_stored([&]<class Out>() {
        const int64_t first = row0 + i / kRun * kRun * kLanesM + i % kRun;
        finish.template operator()<Out>(
            [&](int line) { return first + line % kLanesM * kRun + line / kLanesM; });
        FASTGEMM_NO_UNROLL
        for (int half = 0; half < 2; ++half)  // the rows i, then the rows i + 1
          store_lines<Out>(out.result, slab + half * kLanesM * kSlabPitch + lane, first + half,
                           column0 + lane, m, n);
      });
    }
  }

 private:
  // Stores kLanesM lines of the slab, which are kRun rows apart in C. All elements of c are loaded before any
  // result is written, so that the loads are in flight together.
  template <class Out, class R>
  static __device__ __forceinline__ void store_lines(const R& result, const Word* slab, int64_t row,
                                                     int64_t column, int64_t m, int64_t n) {
    Word value[kLanesM][kN / 32];
    FASTGEMM_UNROLL
    for (int r = 0; r < kLanesM; ++r) {
      FASTGEMM_UNROLL
      for (int c = 0; c < kN / 32; ++c) {
        value[r][c] = slab[r * kSlabPitch + c * 32];
        if (row + r * kRun < m && column + c * 32 < n)
          value[r][c] = result.template blend<Out>(row + r * kRun, column + c * 32, value[r][c]);
      }
    }
    FASTGEMM_UNROLL
    for (int r = 0; r < kLanesM; ++r) {
      FASTGEMM_UNROLL
      for (int c = 0; c < kN / 32; ++c)
        if (row + r * kRun < m && column + c * 32 < n)
          result.template put<Out>(row + r * kRun, column + c * 32, value[r][c]);
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
