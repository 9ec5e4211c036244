// The outer product of a thread: SIZE x SIZE sums in registers from SIZE values of a row of each panel, and
// their store. The block has 16 x 16 threads (thread_place()); all of a panel's row is in shared memory.
//
//   columns of the block tile, SIZE = 8, 4-byte sums
//   |thread 0|thread 1| ... |thread 15|thread 0|thread 1| ... |thread 15|
//    0..3     4..7           60..63    64..67   68..71
#pragma once

#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T, int SIZE>
struct ThreadTile {
  using Acc = Accumulator<T>;
  static constexpr int kVector = kPer16Bytes<Acc>;
  static_assert(SIZE % kVector == 0);
  Acc sum[SIZE][SIZE] = {};

  // Position i of the thread at `place` (0 to 15) in the block tile.
  static __device__ __forceinline__ int offset(int place, int i) {
    return i / kVector * 16 * kVector + place * kVector + i % kVector;
  }
  static __device__ __forceinline__ void read(Acc (&to)[SIZE], const Acc* row, int place) {
    FASTGEMM_UNROLL
    for (int i = 0; i < SIZE; i += kVector) {
      const auto v = load_vector<Vector16<Acc>>(row + offset(place, i));
      FASTGEMM_UNROLL
      for (int e = 0; e < kVector; ++e) to[i + e] = v[e];
    }
  }
  __device__ __forceinline__ void add_outer_product(const Acc (&a)[SIZE], const Acc (&b)[SIZE]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < SIZE; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < SIZE; ++j) sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
    }
  }
};

// Stores a thread's results, the part of them that lies inside C, a vector at a time.
template <class T, int SIZE>
__device__ __forceinline__ void store_thread_tile(const Gemm<T>& g, ResultVectors vectors,
                                                  const ThreadTile<T, SIZE>& thread_tile, BlockTile tile,
                                                  ThreadPlace place) {
  constexpr int N = ThreadTile<T, SIZE>::kVector;
  with_stored_type(g.result, [&]<class Out>() {
    FASTGEMM_UNROLL
    for (int i = 0; i < SIZE; ++i) {
      const int64_t row = tile.row + ThreadTile<T, SIZE>::offset(place.m, i);
      FASTGEMM_UNROLL
      for (int j = 0; j < SIZE; j += N) {
        const int64_t col = tile.col + ThreadTile<T, SIZE>::offset(place.n, j);
        const int valid = row < g.m ? inside(g.n, col, N) : 0;
        if (valid > 0) store_row_as<Out, N>(g.result, vectors, row, col, &thread_tile.sum[i][j], valid);
      }
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
