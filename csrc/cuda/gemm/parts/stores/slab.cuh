// A store in little code: a warp's sums (16, COLUMNS) go to C through a slab in shared memory. Contract:
// after put_in_slab() and __syncwarp(), store_slab() applies the epilogue and stores elements, in a loop.
//
// With cold caches, code costs as much time as data: fetching an unrolled store for each of a lane's 32 sums
// takes microseconds.
#pragma once

#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kSlabRows = 16;

// A warp's sums (16, COLUMNS) as 32-bit words, staged in shared memory column by column. The words of two
// columns are permuted so that three access patterns have no bank conflicts: writes of fragments (4 x 8 words
// of four columns), and the lanes' reads (2 x 16 or 8 x 4 words).
template <int COLUMNS>
struct Slab {
  uint32_t word[COLUMNS * kSlabRows];

  __device__ __forceinline__ static int index(int row, int column) {
    return column / 2 * 32 + ((column % 2 * 16 + row) ^ column / 2 % 4 * 8);
  }
};

// Writes a lane's four sums of the 8 columns from `column` on to the warp's slab.
template <class Rows, class Acc>
__device__ __forceinline__ void put_in_slab(uint32_t* slab, int column, const Acc (&sum)[4]) {
  const int lane = int(threadIdx.x) % 32;
  FASTGEMM_UNROLL
  for (int i = 0; i < 4; ++i) {
    uint32_t bits;
    if constexpr (std::is_same_v<Acc, float>)
      bits = __float_as_uint(sum[i]);
    else
      bits = sum[i];
    slab[Slab<8>::index(Rows::row(lane / 4, i / 2), column + lane % 4 * 2 + i % 2)] = bits;
  }
}

// Stores the first `rows` rows and `columns` columns of a warp's slab, which begins at (row, column) of C or,
// if `turned`, of C^T. Neighbouring lanes store neighbouring elements of C's rows. S is the kernel's shape.
template <class S, class Out, class T>
__device__ __forceinline__ void store_slab_as(const Result<T>& result, const Epilogue& epilogue, bool turned,
                                              const uint32_t* slab, int row, int column, int rows,
                                              int columns) {
  using Acc = Accumulator<T>;
  const int log = turned ? 4 : columns <= 8 ? 3 : columns <= 16 ? 4 : 6, along = 1 << log;
  const int across = turned ? columns : kSlabRows;
  constexpr int kAtOnce = 2;  // elements of a lane at a time, so that loads of c overlap
  FASTGEMM_NO_UNROLL
  for (int first = int(threadIdx.x) % 32; first < along * across; first += 32 * kAtOnce) {
    Acc value[kAtOnce];
    const auto each = [&](auto&& body) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + 32 * j, fast = i & (along - 1), slow = i >> log;
        const int r = turned ? fast : slow, c = turned ? slow : fast;
        if (r < rows && c < columns)
          body(j, r, c, turned ? column + c : row + r, turned ? row + r : column + c);
      }
    };
    each([&](int j, int r, int c, int64_t to_row, int64_t to_column) {
      const uint32_t bits = slab[Slab<8>::index(r, c)];
      Acc sum;
      if constexpr (std::is_same_v<Acc, float>)
        sum = __uint_as_float(bits);
      else
        sum = bits;
      if constexpr (kFuses<S>)
        value[j] = finished<Out>(epilogue, result, to_row, to_column, sum);
      else
        value[j] = result.template blend<Out>(to_row, to_column, sum);
    });
    each([&](int j, int, int, int64_t to_row, int64_t to_column) {
      result.template put<Out>(to_row, to_column, value[j]);
    });
  }
}
template <class S, class T>
__device__ __forceinline__ void store_slab(const Result<T>& result, const Epilogue& epilogue, bool turned,
                                           const uint32_t* slab, int row, int column, int rows, int columns) {
  with_stored_type(result, [&]<class Out>() {
    store_slab_as<S, Out>(result, epilogue, turned, slab, row, column, rows, columns);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
