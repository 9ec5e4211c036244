// Epilogues in kernels that multiply: out = activation(alpha * sum + bias) + beta * c, rounded once.
// Contract: a kernel's shape S says by kFuses<S> that it has one, and plain products are compiled as if there
// were none.
#pragma once

#include "cuda/device/activation.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S>
struct Fusing : S {
  using Fuses = void;
};
template <class S>
inline constexpr bool kFuses = requires { typename S::Fuses; };

// One element of C, for kernels that store element by element.
template <class Out, class T>
__device__ __forceinline__ float finished(const Epilogue& e, const Result<T>& r, int64_t row, int64_t column,
                                          float sum) {
  float x = r.alpha * sum;
  if (e.bias != nullptr)
    x += widen(static_cast<const Out*>(e.bias)[row * e.bias_row_stride + column * e.bias_col_stride]);
  with_activation(e.activation, [&]<Activation activation>() { x = short_activation<activation>(x); });
  if (r.beta != 0)
    x += r.beta * widen(static_cast<const Out*>(r.c)[row * r.c_row_stride + column * r.c_col_stride]);
  return x;
}

// Bias and activation of a lane's sums of a strip of wgmma tiles: 0 and 1 of every four are neighbours in one
// row, 2 and 3 below them, and from four to four it is 8 columns. `bias` is that of the strip's first column;
// `left` columns from there on lie in C. Pairs of bias are read as a whole: it is aligned to them, and C has
// even columns.
template <class Out, int R>
__device__ __forceinline__ void finish_fragments(Activation activation, const Out* bias, int left,
                                                 float (&sum)[R]) {
  constexpr int kAtOnce = 64 / int(sizeof(Out));  // sums whose bias takes 8 registers
  const int first = fresh_lane() % 4 * 2;
  if (bias == nullptr) left = 0;
  with_activation(activation, [&]<Activation which>() {
    FASTGEMM_UNROLL
    for (int i = 0; i < R; i += kAtOnce) {
      __syncwarp();  // keeps the compiler from loading all of bias first, which takes too many registers
      Vector<Out, 2> pair[kAtOnce / 4] = {};
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce / 4; ++j)
        if (first + 2 * i + 8 * j < left) pair[j] = load_vector<Vector<Out, 2>>(bias + first + 2 * i + 8 * j);
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce; ++j)
        sum[i + j] = short_activation<which>(sum[i + j] + widen(pair[j / 4][j % 2]));
    }
  });
}

// Bias and activation of a warp's sums in shared memory, (ROWS, COLUMNS) from (row0, column0) of C on. A
// __syncwarp() comes before and after.
template <int ROWS, int COLUMNS, class T>
__device__ __forceinline__ void finish_slab(const Epilogue& e, const Gemm<T>& g, float* sums, int pitch,
                                            int64_t row0, int64_t column0) {
  const int lane = int(threadIdx.x) % 32, rows = inside(g.m, row0, ROWS);
  with_stored_type(g.result, [&]<class Out>() {
    FASTGEMM_NO_UNROLL
    for (int j = lane; j < COLUMNS; j += 32) {
      const int64_t column = column0 + j;
      if (column >= g.n) continue;
      const float bias = e.bias ? widen(static_cast<const Out*>(e.bias)[column * e.bias_col_stride]) : 0.f;
      with_activation(e.activation, [&]<Activation activation>() {
        FASTGEMM_NO_UNROLL
        for (int i = 0; i < rows; ++i) {
          float& x = sums[i * pitch + j];
          x = short_activation<activation>(x + bias);
        }
      });
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
