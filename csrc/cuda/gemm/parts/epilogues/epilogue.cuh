// Bias and activation of sums, for kernels that multiply: activation(sum + bias) where the sums are, in
// registers or in shared memory. Contract: a problem or a kernel's shape S says by kFuses<S> that it has an
// epilogue, and plain products are compiled as if there were none.
#pragma once

#include <type_traits>

#include "cuda/device/activation.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/sync.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S>
struct Fusing : S {
  using Fuses = void;
};
template <class S>
inline constexpr bool kFuses = requires { typename S::Fuses; };

// The argument of kernels that fuse no epilogue: it holds nothing.
struct NoEpilogue {
  NoEpilogue() = default;
  __host__ __device__ __forceinline__ explicit NoEpilogue(const Epilogue&) {}
  template <class Bias>
  NoEpilogue at(int64_t, int64_t) const {
    return {};
  }
};
template <class S>
using EpilogueOf = std::conditional_t<kFuses<S>, Epilogue, NoEpilogue>;

// The activation of a product of Ts: 16-bit types have the short forms, float32 has the C library's.
template <class T>
__device__ __forceinline__ float activated(Activation activation, float x) {
  if constexpr (std::is_same_v<T, float>) return activate(activation, x);
  with_activation(activation, [&]<Activation which>() { x = short_activation<which>(x); });
  return x;
}

// activation(x + bias) for one element of C. Bias is the type of the bias in memory, and x a sum of products
// of type T.
template <class Bias, class T>
__device__ __forceinline__ float activated_sum(const Epilogue& e, int64_t row, int64_t column, float x) {
  if (e.bias != nullptr)
    x += widen(static_cast<const Bias*>(e.bias)[row * e.bias_row_stride + column * e.bias_col_stride]);
  return activated<T>(e.activation, x);
}

// Adds bias to a warp's sums in shared memory, and applies the activation. The sums are LINES parts of rows
// of C, from column0 on; line i belongs to row row_of(i). A __syncwarp() comes before. A lane changes only
// columns that it stores itself (32 neighbours store a line), so no __syncwarp() follows.
template <class Out, int LINES, int COLUMNS, class Row>
__device__ __forceinline__ void finish_lines(const Epilogue& e, float* lines, int pitch, Row&& row_of,
                                             int64_t column0, int64_t m, int64_t n) {
  FASTGEMM_NO_UNROLL
  for (int i = fresh_lane(); i < LINES * COLUMNS; i += 32) {
    const int64_t row = row_of(i / COLUMNS), column = column0 + i % COLUMNS;
    float& x = lines[i / COLUMNS * pitch + i % COLUMNS];
    if (row < m && column < n) x = activated_sum<Out, Out>(e, row, column, x);
  }
}

// Does the same for (rows, COLUMNS) sums of a warp in shared memory, from column0 on, with the short form of
// the activation. The first `columns` columns lie in C. Bias is a row of Out. A __syncwarp() comes before and
// after.
template <class Out, int COLUMNS>
__device__ __forceinline__ void finish_slab(const Epilogue& e, float* sums, int pitch, int rows,
                                            int64_t column0, int columns) {
  FASTGEMM_NO_UNROLL
  for (int j = int(threadIdx.x) % 32; j < COLUMNS; j += 32) {
    if (j >= columns) continue;
    const float bias =
        e.bias ? widen(static_cast<const Out*>(e.bias)[(column0 + j) * e.bias_col_stride]) : 0.f;
    with_activation(e.activation, [&]<Activation activation>() {
      FASTGEMM_NO_UNROLL
      for (int i = 0; i < rows; ++i) {
        float& x = sums[i * pitch + j];
        x = short_activation<activation>(x + bias);
      }
    });
  }
}

// Adds bias to a lane's sums of a strip of wgmma tiles, and applies the activation in its short form. In each
// group of four sums, 0 and 1 are neighbours in one row, and 2 and 3 lie below them. The next four lie 8
// columns further. `bias` points to the bias of the strip's first column; `left` columns from there on lie in
// C. Bias is read in whole pairs, so the last pair may include one element behind the end (whole_pairs() in
// parts/sources/wgmma_operand.cuh). BIAS_BYTES bytes of it are in registers at a time.
template <int BIAS_BYTES, class Out, int R>
__device__ __forceinline__ void finish_fragments(Activation activation, const Out* bias, int left,
                                                 float (&sum)[R]) {
  constexpr int kAtOnce = 2 * BIAS_BYTES / int(sizeof(Out));
  static_assert(R % kAtOnce == 0);
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
// Does the same for the strip that begins at `column`. C has n columns.
template <int BIAS_BYTES, class Out, int R>
__device__ __forceinline__ void finish_strip(const Epilogue& e, int column, int n, float (&sum)[R]) {
  const Out* const bias = static_cast<const Out*>(e.bias);
  finish_fragments<BIAS_BYTES>(e.activation, bias ? bias + column : nullptr, n - column, sum);
}

}  // namespace fastgemm::FASTGEMM_TARGET
