// What is made of a product before it is rounded: out = activation(product + bias) + residual, where the
// residual is the matrix c of the problem. One header for hosts, GPUs and the simulator.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define FASTGEMM_ANYWHERE __host__ __device__ __forceinline__
#else
// Never out of line: files that are compiled for several instruction sets share it.
#define FASTGEMM_ANYWHERE inline __attribute__((always_inline))
#endif

namespace fastgemm {

enum class Activation : uint8_t { none, relu, gelu, gelu_tanh, silu };
inline constexpr int kActivations = 5;

// A row of bias has row_stride 0; of a product that is computed as its transpose it is a column. Elements
// have the type of the result.
struct Epilogue {
  Activation activation = Activation::none;
  bool has_bias = false;  // known before the address is
  const void* bias = nullptr;
  int64_t bias_row_stride = 0, bias_col_stride = 0;

  FASTGEMM_ANYWHERE bool asked() const { return activation != Activation::none || has_bias; }
  // That of the part of C from (row, column) on.
  template <class Bias>
  Epilogue at(int64_t row, int64_t column) const {
    Epilogue e = *this;
    if (bias) e.bias = static_cast<const Bias*>(bias) + row * bias_row_stride + column * bias_col_stride;
    return e;
  }
  Epilogue transposed() const { return {activation, has_bias, bias, bias_col_stride, bias_row_stride}; }
};

// The activations as PyTorch defines them, by the functions of the C library: for passes that memory bounds,
// and for float32 on GPUs. Others that multiply have shorter forms (cuda/device/activation.cuh,
// cpu/gemm/activation.h).
FASTGEMM_ANYWHERE float erf_of(float x) { return erff(x); }
FASTGEMM_ANYWHERE double erf_of(double x) { return erf(x); }
FASTGEMM_ANYWHERE float exp_of(float x) { return expf(x); }
FASTGEMM_ANYWHERE double exp_of(double x) { return exp(x); }
FASTGEMM_ANYWHERE float tanh_of(float x) { return tanhf(x); }
FASTGEMM_ANYWHERE double tanh_of(double x) { return tanh(x); }

inline constexpr double kInverseSqrt2 = 0.70710678118654752440;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588, kCubic = 0.044715;  // of gelu's tanh form

template <class T>
FASTGEMM_ANYWHERE T activate(Activation activation, T x) {
  switch (activation) {
    case Activation::relu:
      return x < T(0) ? T(0) : x;  // NaN stays
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
