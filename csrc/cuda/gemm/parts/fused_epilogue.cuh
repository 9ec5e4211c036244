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

// A kernel's argument: nothing for those that fuse none.
struct NoEpilogue {
  NoEpilogue() = default;
  explicit NoEpilogue(const Epilogue&) {}
  template <class Bias>
  NoEpilogue at(int64_t, int64_t) const {
    return {};
  }
};
template <class S>
using EpilogueOf = std::conditional_t<kFuses<S>, Epilogue, NoEpilogue>;

// The activation of a product of Ts: the short forms are as accurate as 16 bits, float32 has the C library's.
template <class T>
__device__ __forceinline__ float activated(Activation activation, float x) {
  if constexpr (std::is_same_v<T, float>) return activate(activation, x);
  with_activation(activation, [&]<Activation which>() { x = short_activation<which>(x); });
  return x;
}

// One element of C, for kernels that store element by element.
template <class Out, class T>
__device__ __forceinline__ float finished(const Epilogue& e, const Result<T>& r, int64_t row, int64_t column,
                                          float sum) {
  float x = r.alpha * sum;
  if (e.bias != nullptr)
    x += widen(static_cast<const Out*>(e.bias)[row * e.bias_row_stride + column * e.bias_col_stride]);
  x = activated<T>(e.activation, x);
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

// `valid` of N neighbours in a row of C.
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

// The epilogue of rows of C that this warp has just stored as alpha * sums, for kernels whose sums take all
// registers, and would take too many instructions if each had its own: float32 rounds nothing on the way
// through L2. (rows, columns) of C from (row0, column0) on; bias is a row.
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
