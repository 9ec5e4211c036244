// The results of a thread at levels 4 and 5 of packed weights: 8 rows of x times 4 rows of the weight, of a
// block tile of 64 x 64 for 128 threads. A warp has 4 x 8 threads.
#pragma once

#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct ThreadSums {
  static constexpr int kM = 8, kN = 4, kBM = 64, kBN = 64, kThreads = 128, kPlacesM = kBM / kM;
  float sum[kM][kN] = {};

  // The thread's place, 0 to 7 along the rows of x and 0 to 15 along those of the weight.
  __device__ __forceinline__ static int place_m() {
    return int(threadIdx.x) % 32 / 8 + int(threadIdx.x) / 64 * 4;
  }
  __device__ __forceinline__ static int place_n() {
    return int(threadIdx.x) % 8 + int(threadIdx.x) / 32 % 2 * 8;
  }

  __device__ __forceinline__ void add_outer_product(const float (&x)[kM], const Vector16<float>& w) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kM; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kN; ++j) sum[i][j] = multiply_add(x[i], w[j], sum[i][j]);
    }
  }

  // row(i): the row of sum i in the tile. This is a loop, so that the code of the store exists once.
  // Registers cannot be indexed at run time, so the sums move up by one place in each iteration.
  template <class T, class Row>
  __device__ __forceinline__ void store(const Gemm<T>& g, ResultVectors vectors, BlockTile tile, Row&& row) {
    const int64_t column = tile.col + place_n() * kN;
    with_stored_type(g.result, [&]<class Out>() {
      FASTGEMM_NO_UNROLL
      for (int i = 0; i < kM; ++i) {
        const int valid = tile.row + row(i) < g.m ? inside(g.n, column, kN) : 0;
        if (valid > 0) store_row_as<Out, kN>(g.result, vectors, tile.row + row(i), column, sum[0], valid);
        FASTGEMM_UNROLL
        for (int j = 0; j < (kM - 1) * kN; ++j) sum[j / kN][j % kN] = sum[j / kN + 1][j % kN];
      }
    });
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
