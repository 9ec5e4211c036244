// The activations of core/epilogue.h for kernels that multiply, where each instruction is paid for while the
// tensor cores wait: without branches, by one or two of the special-function unit's approximations. They err
// by less than 6e-5 of the value (16-bit results are rounded by 4.9e-4 and 3.9e-3 of it), by 2e-7 where gelu
// is below 1e-6.
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

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), Phi the normal distribution: Phi(-z) is exp(-z^2 / 2) times a
// function that falls from 1/2 at 0 to 0.07 at 5.5, here a polynomial of degree 9 in z / 2.75 - 1.
__device__ __forceinline__ float short_gelu(float x) {
  const float z = fminf(fabsf(x), 13.f), y = fminf(fmaf(z, float(1 / 2.75), -1.f), 1.f);
  float p = -0.00758323194f;
  constexpr float coefficients[] = {0.0152215597f, -0.00840587028f, 0.00970697744f,
                                    -0.028732575f, 0.0457702188f,   -0.061629524f,
                                    0.0837254184f, -0.10846563f,    0.130731481f};
  FASTGEMM_UNROLL
  for (const float c : coefficients) p = fmaf(p, y, c);
  const float tail = p * short_exp2(z * z * -0.72134752f);  // log2(e) / 2
  return fmaf(-z, tail, fmaf(0.5f, fabsf(x), 0.5f * x));    // NaN stays
}

template <Activation activation>
__device__ __forceinline__ float short_activation(float x) {
  constexpr float kLog2e = 1.44269504f;
  if constexpr (activation == Activation::relu) {
    return x < 0.f ? 0.f : x;  // NaN stays
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
