// The epilogue of a product, applied before rounding: out = activation(product + bias) + residual. The
// residual is the matrix c of the problem. CPU code, GPU code and the simulator share this header.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define FASTGEMM_ANYWHERE __host__ __device__ __forceinline__
#else
// Always inline: files compiled for different instruction sets must not share one copy.
#define FASTGEMM_ANYWHERE inline __attribute__((always_inline))
#endif

namespace fastgemm {

enum class Activation : uint8_t { none, relu, gelu, gelu_tanh, silu };
inline constexpr int kActivations = 5;

// A bias along the rows has row_stride 0. In a product that is computed as its transpose, the bias is a
// column. Its elements have the type of the result.
struct Epilogue {
  Activation activation = Activation::none;
  bool has_bias = false;  // set before the address is known
  const void* bias = nullptr;
  int64_t bias_row_stride = 0, bias_col_stride = 0;

  FASTGEMM_ANYWHERE bool asked() const { return activation != Activation::none || has_bias; }
  // The epilogue of the part of C that begins at (row, column).
  template <class Bias>
  Epilogue at(int64_t row, int64_t column) const {
    Epilogue e = *this;
    if (bias) e.bias = static_cast<const Bias*>(bias) + row * bias_row_stride + column * bias_col_stride;
    return e;
  }
  Epilogue transposed() const { return {activation, has_bias, bias, bias_col_stride, bias_row_stride}; }
};

// The activations as PyTorch defines them, by functions of the C library. Memory-bound passes use them, and
// so do the GPU kernels for float32. Other kernels use cheaper forms (cuda/device/activation.cuh,
// cpu/gemm/activation.h).
FASTGEMM_ANYWHERE float erf_of(float x) { return erff(x); }
FASTGEMM_ANYWHERE double erf_of(double x) { return erf(x); }
FASTGEMM_ANYWHERE float exp_of(float x) { return expf(x); }
FASTGEMM_ANYWHERE double exp_of(double x) { return exp(x); }
FASTGEMM_ANYWHERE float tanh_of(float x) { return tanhf(x); }
FASTGEMM_ANYWHERE double tanh_of(double x) { return tanh(x); }

inline constexpr double kInverseSqrt2 = 0.70710678118654752440;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588, kCubic = 0.044715;  // for gelu's tanh form

template <class T>
FASTGEMM_ANYWHERE T activate(Activation activation, T x) {
  switch (activation) {
    case Activation::relu:
      return x < T(0) ? T(0) : x;  // keeps NaN
    case Activation::gelu:
      return T(0.5) * x * (T(1) + erf_of(x * T(kInverseSqrt2)));
    case Activation::gelu_tanh:
      return T(0.5) * x * (T(1) + tanh_of(T(kSqrt2OverPi) * (x + T(kCubic) * x * x * x)));
    case Activation::silu:
      return x / (T(1) + exp_of(-x));
    default:
      return x;
  }
}

}  // namespace fastgemm
