// The activations of an epilogue for vectors, without branches. They agree with PyTorch's definitions within
// 4 units in the last place of float32, or within 2e-7 for values below 1.
#pragma once

#include "core/epilogue.h"
#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {

// 2^x. The integer nearest to x goes into the exponent. A Taylor polynomial of degree 7 computes 2 to the
// power of the difference, which is at most 1/2. The result is infinite from 128 on, and 2^-126 below -126.
FASTGEMM_INLINE Vector<float> exp2_of(Vector<float> x) {
  using V = Vector<float>;
  using Bits = Vector<uint32_t>;
  x = x < -126.f ? broadcast<V>(-126.f) : x;
  x = x > 128.f ? broadcast<V>(128.f) : x;
  const V shifted = x + 12582912.f;  // 1.5 * 2^23: the integer is in the low bits
  const V rest = x - (shifted - 12582912.f);
  V p = broadcast<V>(1.52527338e-5f);
  constexpr float coefficients[] = {
      1.54035304e-4f, 1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 2.40226507e-1f, 6.93147181e-1f, 1.f};
#pragma GCC unroll 7
  for (const float c : coefficients) p = p * rest + c;
  return (V)((Bits)p + ((Bits)shifted << 23));
}

// x times the normal distribution: x Phi(x) = max(x, 0) - |x| Phi(-|x|). Phi(-z) is exp(-z^2 / 2) times a
// smooth function that falls from 1/2 at 0 to 0.07 at 5.5; a polynomial of degree 14 in z / 2.75 - 1
// approximates it. Values far below 0 therefore keep their relative accuracy, which the formula with 1 + erf
// would lose.
FASTGEMM_INLINE Vector<float> gelu_of(Vector<float> x) {
  using V = Vector<float>;
  const V magnitude = x < 0.f ? -x : x;
  const V z = magnitude < 13.f ? magnitude : broadcast<V>(13.f);  // 13 for NaN, too
  V y = z * float(1 / 2.75) - 1.f;
  y = y < 1.f ? y : broadcast<V>(1.f);
  V p = broadcast<V>(0.000361851936f);
  constexpr float coefficients[] = {-0.000825232519f, 0.000331706773f, -0.000278472917f, 0.00226794169f,
                                    -0.0044923243f,   0.00658126707f,  -0.0108248538f,   0.0180780356f,
                                    -0.0284361235f,   0.0427339015f,   -0.0614860222f,   0.0840918892f,
                                    -0.108485603f,    0.130724738f};
#pragma GCC unroll 14
  for (const float c : coefficients) p = p * y + c;
  const V tail = p * exp2_of(z * z * -0.72134752f);  // log2(e) / 2
  return 0.5f * x + 0.5f * magnitude - z * tail;
}

FASTGEMM_INLINE Vector<float> activate_vector(Activation activation, Vector<float> x) {
  using V = Vector<float>;
  constexpr float kLog2e = 1.44269504f;
  switch (activation) {
    case Activation::relu:
      return x < 0.f ? V{} : x;
    case Activation::gelu:
      return gelu_of(x);
    case Activation::gelu_tanh: {  // 1 + tanh(u) = 2 / (1 + exp(-2 u))
      const V twice = float(2 * kSqrt2OverPi) * (x + float(kCubic) * x * x * x);
      return x / (1.f + exp2_of(twice * -kLog2e));
    }
    case Activation::silu:
      return x / (1.f + exp2_of(x * -kLog2e));
    default:
      return x;
  }
}
FASTGEMM_INLINE Vector<double> activate_vector(Activation activation, Vector<double> x) {
  if (activation == Activation::relu) return x < 0.0 ? Vector<double>{} : x;
  for (int i = 0; i < kLanes<double>; ++i) x[i] = activate(activation, x[i]);
  return x;
}

// Computes one number as a vector, so that its bits do not depend on its place in a row.
template <class T>
FASTGEMM_INLINE T activate_one(Activation activation, T x) {
  return activate_vector(activation, broadcast<Vector<T>>(x))[0];
}

// Whether the last `count` numbers of a row are worth a vector of their own, rather than a share of one with
// the ends of other rows (activate_rest). A float64 vector is activated number by number, zeros included.
template <class T>
constexpr bool worth_a_vector(int64_t count) {
  return sizeof(T) == 4 && 4 * count > kLanes<T>;
}

template <class T>
[[gnu::noinline]] void activate_part(Activation activation, T* part) {
  store(part, activate_vector(activation, load<Vector<T>>(part)));
}

// Activates columns that fill no vector, a vector at a time across the ends of rows: one by one, each would
// take the time of a vector. `before(i, j)` is the number before the activation; after(i, j, x) takes it from
// there.
template <class T, class Before, class After>
FASTGEMM_INLINE void activate_rest(Activation activation, int64_t rows, int64_t cols, Before&& before,
                                   After&& after) {
  constexpr int64_t N = kLanes<T>;
  struct Place {
    int64_t row = 0, col = 0;
    FASTGEMM_INLINE void advance(int64_t cols) {
      if (++col == cols) col = 0, ++row;
    }
  } from, to;
  for (int64_t left = rows * cols; left > 0; left -= N) {
    const int64_t count = min(N, left);
    T part[N] = {};
    for (int64_t l = 0; l < count; ++l, from.advance(cols)) part[l] = before(from.row, from.col);
    activate_part(activation, part);
    for (int64_t l = 0; l < count; ++l, to.advance(cols)) after(to.row, to.col, part[l]);
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
