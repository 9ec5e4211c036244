// The arithmetic that the rows of level 5 share: a warp multiplies panels in shared memory, each lane as
// outer products of TM x TN sums in registers, and stores its sums to C through shared memory of its own.
#pragma once

#include "cuda/device/sync.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/panels.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Leaves sums as they are.
struct AsSummed {
  template <class Out, class Row>
  __device__ __forceinline__ void operator()(Row&&) const {}
};

// LanesM x LanesN lanes (8 x 4 unless told) of TM x TN sums. A lane's rows (and columns) come in runs of 16
// bytes, the runs of the LanesM (LanesN) lanes side by side, so that a warp's 16-byte loads touch one
// contiguous piece of a panel row.
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

  // The lane's place. The diagonal in lane_n gives each group of four neighbouring lanes four addresses in A
  // and in B: such a load returns over 4 cycles, and leaves more issue slots to multiply-adds than a load
  // with broadcasts, which returns in 2.
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

  // a and b: a row of k in shared memory, advanced to row(0) and column(0).
  static __device__ __forceinline__ void load(Fragment& f, const Word* a, const Word* b) {
    FASTGEMM_UNROLL
    for (int i = 0; i < TM; i += kRun) store_vector(&f.a[i], load_vector<Vector16<Word>>(a + i * kLanesM));
    FASTGEMM_UNROLL
    for (int j = 0; j < TN; j += kRun) store_vector(&f.b[j], load_vector<Vector16<Word>>(b + j * kLanesN));
  }

  // `zero` comes from a kernel argument: a zero that the compiler knew would be rematerialized as moves of
  // aligned register quads, and those end in bank conflicts with B.
  __device__ __forceinline__ void clear(Word zero) {
    FASTGEMM_UNROLL
    for (int i = 0; i < TM; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < TN; ++j) sum[i][j] = zero;
    }
  }

  // Row by row, there and back: at each turn an element of B stays in the operand cache, elsewhere one of A.
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

  // The tile passes through shared memory in pieces of kSlabRows rows, so that C is written in whole lines
  // whatever its alignment. The stores are scalar and volatile: merged into 16-byte ones they would tie the
  // sums to aligned register quads in the main loop too.
  static constexpr int kSlabRows = 2 * kLanesM, kSlabPitch = kN + 1, kSlabWords = kSlabRows * kSlabPitch;
  // finish.operator()<Out>(row_of) may change the sums of a piece, kSlabRows rows of the slab, before they
  // are stored as elements of Out: line i of the piece is a part of row row_of(i) of C.
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
  // kLanesM lines of the slab, kRun rows of C apart. All of C is read before any of it is written, so that
  // the latency of a batch of loads is paid and not of each.
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
