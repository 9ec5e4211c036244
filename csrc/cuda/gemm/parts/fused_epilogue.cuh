// Epilogues in kernels that multiply: out = activation(alpha * sum + bias) + beta * c, rounded once.
// Contract: a kernel's shape S says by kFuses<S> that it has one, and plain products are compiled as if there
// were none.
#pragma once

#include "cuda/device/activation.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

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
  const int first = int(threadIdx.x) % 4 * 2;
  with_activation(activation, [&]<Activation which>() {
    FASTGEMM_UNROLL
    for (int i = 0; i < R; i += 4) {
      Vector<Out, 2> pair{};
      if (bias != nullptr && first + i * 2 < left) pair = load_vector<Vector<Out, 2>>(bias + first + i * 2);
      FASTGEMM_UNROLL
      for (int e = 0; e < 4; ++e) sum[i + e] = short_activation<which>(sum[i + e] + widen(pair[e % 2]));
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
