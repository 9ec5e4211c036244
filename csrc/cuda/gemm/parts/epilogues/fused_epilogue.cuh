// Epilogues that a multiplying kernel applies when it stores its results: out = activation(alpha * sum +
// bias) + beta * c, rounded once. Kernels that apply it to sums before they store them need only
// parts/epilogues/epilogue.cuh.
#pragma once

#include "cuda/gemm/parts/epilogues/epilogue.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The result of one element, for kernels that store element by element.
template <class Out, class T>
__device__ __forceinline__ float finished(const Epilogue& e, const Result<T>& r, int64_t row, int64_t column,
                                          float sum) {
  float x = activated_sum<Out, T>(e, row, column, r.alpha * sum);
  if (r.beta != 0)
    x += r.beta * widen(static_cast<const Out*>(r.c)[row * r.c_row_stride + column * r.c_col_stride]);
  return x;
}
template <class T>
__device__ __forceinline__ void store_finished(const Epilogue& e, const Result<T>& r, int64_t row,
                                               int64_t column, float sum) {
  with_stored_type(
      r, [&]<class Out>() { r.template put<Out>(row, column, finished<Out>(e, r, row, column, sum)); });
}

// Applies the epilogue to a warp's slab (parts/stores/warp_slab.cuh) that begins at (row0, column0) of C.
template <class Slab, class T>
__device__ __forceinline__ void finish_slab(Slab& slab, const Gemm<T>& g, const Epilogue& e, int64_t row0,
                                            int64_t column0) {
  with_stored_type(g.result, [&]<class Out>() {
    finish_slab<Out, Slab::kColumns>(e, slab.sums, Slab::kPitch, inside(g.m, row0, Slab::kRows), column0,
                                     inside(g.n, column0, Slab::kColumns));
  });
  __syncwarp();
}

// Stores the first `valid` of N neighbours in a row of C.
template <class Out, int N, class T>
__device__ __forceinline__ void store_row_finished(const Epilogue& e, const Result<T>& r,
                                                   ResultVectors vectors, int64_t row, int64_t column,
                                                   const float* sum, int valid) {
  float x[N];
  FASTGEMM_UNROLL
  for (int i = 0; i < N; ++i) x[i] = i < valid ? finished<Out>(e, r, row, column + i, sum[i]) : 0.f;
  Result<T> as_it_is = r;
  as_it_is.alpha = 1, as_it_is.beta = 0;
  store_row_as<Out, N>(as_it_is, vectors, row, column, x, valid);
}

// Applies the epilogue to (rows, columns) of C from (row0, column0) on, which this warp has just stored as
// alpha * sums. It is for kernels whose sums take all registers, and in which a separate epilogue for each
// sum would be too much code. float32 loses nothing by being stored in between. The bias is a row.
__device__ __forceinline__ void finish_stored(const Epilogue& e, const Result<float>& r, int row0,
                                              int column0, int rows, int columns) {
  constexpr int kAtOnce = 4;  // loads in flight
  __syncwarp();
  const int64_t row_stride = r.row_stride, c_row_stride = r.c_row_stride;
  const auto finish_column = [&]<Activation activation>(float* to, const float* c, float bias) {
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < rows; i += kAtOnce) {
      float x[kAtOnce];
      FASTGEMM_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        if (i + k < rows) x[k] = to[k * row_stride];
      FASTGEMM_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        if (i + k >= rows) continue;
        float y = activate(activation, x[k] + bias);
        if (r.beta != 0) y += r.beta * c[k * c_row_stride];
        to[k * row_stride] = y;
      }
      to += kAtOnce * row_stride, c += kAtOnce * c_row_stride;
    }
  };
  FASTGEMM_NO_UNROLL
  for (int j = fresh_lane(); j < columns; j += 32) {
    const int64_t column = column0 + j;
    const float bias = e.bias ? static_cast<const float*>(e.bias)[column * e.bias_col_stride] : 0.f;
    float* const to = static_cast<float*>(r.out) + row0 * r.row_stride + column;
    const float* const c = static_cast<const float*>(r.c) + row0 * r.c_row_stride + column * r.c_col_stride;
    with_activation(e.activation, [&]<Activation activation>() {
      finish_column.template operator()<activation>(to, c, bias);
    });
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
