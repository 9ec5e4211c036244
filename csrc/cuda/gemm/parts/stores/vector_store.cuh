// The epilogue that moves 16 bytes at a time: out = alpha * sum + beta * c for N neighbours in a row of C.
// The caller says how many of them lie inside C.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Whether 16-byte accesses along the contiguous direction are aligned in every row and every batch.
bool takes_vectors(const void*, int element_bytes, int64_t row_stride, int64_t col_stride,
                   int64_t batch_stride);
template <class T>
bool takes_vectors(const Operand<T>& x) {
  return takes_vectors(x.data, int(sizeof(T)), x.row_stride, x.col_stride, x.batch_stride);
}

// How the epilogue may reach out and c.
struct ResultVectors {
  bool out, c;
};
template <class T>
ResultVectors result_vectors(const Result<T>&);

// Stores `valid` of N neighbouring results of a row of C.
template <class Out, int N, class T>
__device__ __forceinline__ void store_row_as(const Result<T>& r, ResultVectors vectors, int64_t row,
                                             int64_t col, const Accumulator<T>* sum, int valid) {
  using V = Vector<Out, N>;
  V result{};
  if (r.beta != 0) {
    const Out* c = static_cast<const Out*>(r.c) + row * r.c_row_stride + col * r.c_col_stride;
    if (vectors.c && valid >= N) {
      result = load_vector<V>(c);
    } else {
      FASTGEMM_UNROLL
      for (int e = 0; e < N; ++e)
        if (e < valid) result[e] = c[e * r.c_col_stride];
    }
    FASTGEMM_UNROLL
    for (int e = 0; e < N; ++e) result[e] = round_to<Out>(r.alpha * sum[e] + r.beta * widen(result[e]));
  } else {
    FASTGEMM_UNROLL
    for (int e = 0; e < N; ++e) result[e] = round_to<Out>(r.alpha * sum[e]);
  }
  Out* out = static_cast<Out*>(r.out) + row * r.row_stride + col;
  if (vectors.out && valid >= N) return store_vector_whole(out, result);
  FASTGEMM_UNROLL
  for (int e = 0; e < N; ++e)
    if (e < valid) out[e] = result[e];
}

}  // namespace fastgemm::FASTGEMM_TARGET
