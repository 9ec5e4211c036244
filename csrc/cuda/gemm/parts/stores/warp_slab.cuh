// A warp's sums (ROWS, COLUMNS) on their way through shared memory, so that C is read and written in whole
// units of 16 bytes or, where its rows begin anywhere, in lines. A __syncwarp() comes after put.
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/sync.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class Acc, int ROWS, int COLUMNS>
struct WarpSlab {
  static constexpr int kPitch = COLUMNS + 32 / int(sizeof(Acc));  // rows 8 banks apart: no conflicts
  alignas(32) Acc sums[ROWS * kPitch];

  static constexpr int kRows = ROWS, kColumns = COLUMNS;

  // put() writes tiles of mma, (16, 8) each, from tile `first` on.
  template <int M>
  __device__ __forceinline__ void put(const Acc (&sum)[M][COLUMNS / 8][4], int first = 0) {
    const Position p = MmaLayout<float>::c(int(threadIdx.x) % 32, 0);  // the same for all types
    FASTGEMM_UNROLL
    for (int i = 0; i < ROWS / 16; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < COLUMNS / 8; ++j) {
        FASTGEMM_UNROLL
        for (int half = 0; half < 2; ++half)
          store_vector(&sums[(p.row + 16 * i + 8 * half) * kPitch + p.column + 8 * j],
                       Vector<Acc, 2>{{sum[first + i][j][2 * half], sum[first + i][j][2 * half + 1]}});
      }
    }
  }

  template <class T>
  __device__ __forceinline__ void store(const Gemm<T>& g, ResultVectors vectors, int64_t row0,
                                        int64_t column0) const {
    with_stored_type(g.result, [&]<class Out>() {
      if (!vectors.out) return store_lines<Out>(g, row0, column0);
      constexpr int N = kPer16Bytes<Out>, kAcross = COLUMNS / N;
      // Sums of 8 bytes leave no register for the lane's index.
      FASTGEMM_NO_UNROLL
      for (int i = sizeof(Acc) == 8 ? fresh_lane() : int(threadIdx.x) % 32; i < ROWS * kAcross; i += 32) {
        const int row = i / kAcross, column = i % kAcross * N;
        const int valid = row0 + row < g.m ? inside(g.n, column0 + column, N) : 0;
        if (valid <= 0) continue;
        Vector16<Acc> sum[N / kPer16Bytes<Acc>];
        FASTGEMM_UNROLL
        for (int j = 0; j < N / kPer16Bytes<Acc>; ++j)
          sum[j] = load_vector<Vector16<Acc>>(&sums[row * kPitch + column + j * kPer16Bytes<Acc>]);
        store_row_as<Out, N>(g.result, vectors, row0 + row, column0 + column, &sum[0][0], valid);
      }
    });
  }

 private:
  // Stores rows that begin at any address, a line at a time. If each lane stored its 16 bytes element by
  // element, the stores would touch eight times as many sectors. The elements of c of several rows are read
  // before any result is written, so that the rows share one latency.
  template <class Out, class T>
  __device__ __forceinline__ void store_lines(const Gemm<T>& g, int64_t row0, int64_t column0) const {
    constexpr int kAtOnce = 4, kAcross = COLUMNS / 32;
    const Result<T>& r = g.result;
    const int rows = inside(g.m, row0, ROWS), columns = inside(g.n, column0, COLUMNS);
    const int lane = fresh_lane();  // not kept in a register for all of the product
    FASTGEMM_NO_UNROLL
    for (int first = 0; first < rows; first += kAtOnce) {
      Acc value[kAtOnce][kAcross];
      const auto each = [&](auto&& body) {
        FASTGEMM_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          FASTGEMM_UNROLL
          for (int j = 0; j < kAcross; ++j)
            if (first + i < rows && lane + 32 * j < columns)
              body(value[i][j], row0 + first + i, column0 + lane + 32 * j);
        }
      };
      FASTGEMM_UNROLL
      for (int i = 0; i < kAtOnce * kAcross; ++i)
        value[i / kAcross][i % kAcross] = sums[(first + i / kAcross) * kPitch + lane + i % kAcross * 32];
      each([&](Acc& x, int64_t row, int64_t column) { x = r.template blend<Out>(row, column, x); });
      each([&](Acc x, int64_t row, int64_t column) { r.template put<Out>(row, column, x); });
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
