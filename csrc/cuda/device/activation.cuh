// The activations of core/epilogue.h for kernels of 16-bit types and tf32. The tensor cores wait for each
// instruction of an activation, so these functions have no branches, and use one or two approximations of the
// special-function unit. Their error is below 2^-20 of the value or below 2^-24 of x, whichever is larger;
// the second bound matters far below 0. The error of a float32 formula is as large. Such a small error is
// needed, because adding a residual may cancel the leading bits of the value before it is rounded to 16 bits.
#pragma once

#include "core/epilogue.h"
#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// 2^x with an error of 2^-22; results below 2^-126 are 0.
__device__ __forceinline__ float short_exp2(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.f : y;
#endif
}
// x / y with an error of 2 units in the last place; 0 where |y| is above 2^126.
__device__ __forceinline__ float short_divide(float x, float y) {
#if defined(__CUDACC__)
  return __fdividef(x, y);
#else
  return y > 0x1p126f && y <= 0x1.fffffep127f ? x * 0.f : x / y;
#endif
}

// max(x, 0), and NaN if x is NaN.
__device__ __forceinline__ float short_relu(float x) {
#if defined(__CUDACC__)
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
#else
  return x <= 0.f ? 0.f : x;
#endif
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), where Phi is the normal distribution function. Phi(-z) is 2^r(z), and
// r is so smooth that the error of a polynomial of degree 9 is no larger than that of float32 arithmetic. The
// polynomial minimizes the largest error of Phi(-z) in [0, 5.5], weighted by exp(1 - z) beyond 1. |x| above
// 10 counts as 10.
__device__ __forceinline__ float short_gelu(float x) {
  const float z = fminf(fabsf(x), 10.f);  // infinity * 0 would be NaN
  float r = 1.5207597e-7f;
  constexpr float coefficients[] = {-3.6979627e-6f, 3.5666326e-5f, -1.4366892e-4f,
                                    -2.7522611e-4f, 7.2787441e-3f, -5.2665986e-2f,
                                    -4.5914519e-1f, -1.1511139f,   -9.9999982e-1f};
  FASTGEMM_UNROLL
  for (const float c : coefficients) r = fmaf(r, z, c);
  return fmaf(-z, short_exp2(r), short_relu(x));
}

template <Activation activation>
__device__ __forceinline__ float short_activation(float x) {
  constexpr float kLog2e = 1.44269504f;
  if constexpr (activation == Activation::relu) {
    return short_relu(x);
  } else if constexpr (activation == Activation::gelu) {
    return short_gelu(x);
  } else if constexpr (activation == Activation::gelu_tanh) {  // 1 + tanh(u) = 2 / (1 + exp(-2 u))
    constexpr float kTwice = float(-2 * kSqrt2OverPi) * kLog2e;
    const float cubic = fmaf(x * x, kTwice * float(kCubic), kTwice);
    return short_divide(x, 1.f + short_exp2(x * cubic));
  } else if constexpr (activation == Activation::silu) {
    return short_divide(x, 1.f + short_exp2(x * -kLog2e));
  } else {
    return x;
  }
}

// Calls body.operator()<activation>().
template <class Body>
__device__ __forceinline__ void with_activation(Activation activation, Body&& body) {
  switch (activation) {
    case Activation::relu:
      return body.template operator()<Activation::relu>();
    case Activation::gelu:
      return body.template operator()<Activation::gelu>();
    case Activation::gelu_tanh:
      return body.template operator()<Activation::gelu_tanh>();
    case Activation::silu:
      return body.template operator()<Activation::silu>();
    default:
      return body.template operator()<Activation::none>();
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
