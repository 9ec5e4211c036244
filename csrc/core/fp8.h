// Matrices of 8-bit floating-point numbers (OCP OFP8): what their codes stand for, and the passes that make
// and read them. CPU code, GPU code and the simulator share this header.
//
// Scales (core/block_scales.h) are float32, or e8m0: powers of two.
#pragma once

#include "core/context.h"
#include "core/packed_weight.h"
#include "core/problem.h"

namespace fastgemm {

// e4m3 has no infinity; its one NaN is 0x7f. e5m2 is the upper byte of float16.
enum class Fp8 : uint8_t { e4m3, e5m2 };

// The type of a product of such matrices.
constexpr DType product_type(Fp8 a, Fp8 b) {
  if (a == b) return a == Fp8::e4m3 ? DType::e4m3 : DType::e5m2;
  return a == Fp8::e4m3 ? DType::e4m3e5m2 : DType::e5m2e4m3;
}

// Calls body.operator()<code>().
template <class Body>
void with_code(Fp8 code, Body&& body) {
  code == Fp8::e4m3 ? body.template operator()<Fp8::e4m3>() : body.template operator()<Fp8::e5m2>();
}

// out[i, j] = codes[i, j] * scale, rounded once. Rows of codes and of out are contiguous. Without scales
// every code is exact in every type of out.
struct WidenFp8 {
  Fp8 code = Fp8::e4m3;
  DType type = DType::bf16;  // of out: f32, f16 or bf16
  int64_t rows = 0, cols = 0;
  const void* codes = nullptr;
  int64_t row_stride = 0;
  BlockScales scales;
  void* out = nullptr;
  int64_t out_row_stride = 0;
};

// codes[i, j] = x[i, j] / scale, rounded to the nearest code, halves to even; finite numbers beyond the
// largest code become the largest code. The scale of a block is max|x| / largest(code). A scale of type e8m0
// is the next power of two. A block with NaN or infinity gets the scale NaN, so that no product hides it. If
// the caller gives scales, they are read, not computed. codes and scales are contiguous.
//
// With an activation or a residual, activation(x[i, j]) + residual[i, j] takes the place of x[i, j], in
// float32. `gated` is the activation silu(x[i, j]) * x[i, cols + j]: rows of x have 2 * cols numbers.
struct QuantizeFp8 {
  DType type = DType::bf16;  // of x: f32, f16 or bf16
  Fp8 code = Fp8::e4m3;
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;  // contiguous rows
  int64_t row_stride = 0;
  int64_t block_rows = 1, block_cols = 1;
  ScaleType scale = ScaleType::f32;
  bool scale_is_given = false;
  void *codes = nullptr, *scales = nullptr;
  bool gated = false;
  Activation activation = Activation::none;
  const void* residual = nullptr;  // of the type of x, contiguous rows
  int64_t residual_row_stride = 0;
  // If given: codes and scales of the transposed matrix, contiguous, too, by blocks of its own; `codes` may
  // then be missing. Only of x as it is, without a given scale.
  void *codes_t = nullptr, *scales_t = nullptr;
  int64_t block_rows_t = 1, block_cols_t = 1;  // of its rows and columns

  FASTGEMM_ANYWHERE bool as_it_is() const {
    return !gated && activation == Activation::none && residual == nullptr;
  }
  FASTGEMM_ANYWHERE int64_t scale_rows() const { return packed::blocks(rows, block_rows); }
  FASTGEMM_ANYWHERE int64_t scale_cols() const { return packed::blocks(cols, block_cols); }
  FASTGEMM_ANYWHERE bool has_one_scale() const { return block_rows >= rows && block_cols >= cols; }
  // Rounds the transposed matrix alone, whose rows `x_t` has.
  QuantizeFp8 transposed(const void* x_t) const {
    QuantizeFp8 t = *this;
    t.x = x_t, t.rows = cols, t.cols = t.row_stride = rows, t.codes = codes_t, t.scales = scales_t;
    t.block_rows = block_rows_t, t.block_cols = block_cols_t, t.codes_t = t.scales_t = nullptr;
    return t;
  }
};

namespace fp8 {

FASTGEMM_ANYWHERE float scale_of_code(const BlockScales& s, int64_t row, int64_t column) {
  if (s.type == ScaleType::none) return 1.0f;
  return packed::scale_at(s.type, s.data,
                          row / s.block_rows * s.row_stride + column / s.block_cols * s.col_stride);
}

template <Fp8 code>
struct Format {
  static constexpr bool kE4M3 = code == Fp8::e4m3;
  static constexpr int kMantissa = kE4M3 ? 3 : 2;    // bits
  static constexpr int kRebias = kE4M3 ? 120 : 112;  // added to its exponent gives float32's
  static constexpr float kLargest = kE4M3 ? 448.0f : 57344.0f;
  static constexpr float kSmallest = kE4M3 ? 0x1p-9f : 0x1p-16f;  // subnormal
};

FASTGEMM_ANYWHERE uint32_t bits_of_float(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// Without branches, so that compilers make vectors of it.
template <Fp8 code>
FASTGEMM_ANYWHERE float decode(uint32_t byte) {
  using F = Format<code>;
  const uint32_t magnitude = byte & 0x7fu, sign = (byte & 0x80u) << 24;
  uint32_t bits = (magnitude << (23 - F::kMantissa)) + (uint32_t(F::kRebias) << 23);
  const uint32_t small = bits_of_float(float(int(magnitude)) * F::kSmallest);
  bits = magnitude < (1u << F::kMantissa) ? small : bits;
  if constexpr (F::kE4M3)
    bits = magnitude == 0x7fu ? 0x7fc00000u : bits;
  else
    bits = magnitude >= 0x7cu ? bits + (uint32_t(F::kRebias) << 23) : bits;  // infinity and NaN
  return packed::reinterpret_bits<float>(bits | sign);
}

// Infinity stays infinity in e5m2 and becomes NaN in e4m3.
template <Fp8 code>
FASTGEMM_ANYWHERE uint32_t encode(float x) {
  using F = Format<code>;
  constexpr int kShift = 23 - F::kMantissa;
  constexpr uint32_t kInfinity = 0x7f800000u;
  // Its unit in the last place is the smallest code, so the addition rounds to a multiple of that.
  constexpr float kRounds = F::kSmallest * 0x1p23f;
  const uint32_t bits = bits_of_float(x), sign = bits >> 24 & 0x80u, given = bits & 0x7fffffffu;
  const uint32_t largest = bits_of_float(F::kLargest);
  const uint32_t m = given > largest ? largest : given;
  const uint32_t normal = ((m + ((1u << (kShift - 1)) - 1) + (m >> kShift & 1u)) >> kShift) -
                          (uint32_t(F::kRebias) << F::kMantissa);
  const uint32_t small = bits_of_float(packed::reinterpret_bits<float>(m) + kRounds) - bits_of_float(kRounds);
  const uint32_t finite = m < (uint32_t(F::kRebias + 1) << 23) ? small : normal;
  const uint32_t special = given == kInfinity && !F::kE4M3 ? 0x7cu : 0x7fu;
  return (given >= kInfinity ? special : finite) | sign;
}

// The scale of a block whose largest modulus has these bits. e8m0 is stored as its exponent.
template <Fp8 code>
FASTGEMM_ANYWHERE float scale_of(uint32_t largest_bits, ScaleType type) {
  if (largest_bits >= 0x7f800000u) return packed::reinterpret_bits<float>(0x7fc00000u);
  const float scale = packed::reinterpret_bits<float>(largest_bits) / Format<code>::kLargest;
  if (type == ScaleType::f32) return scale;
  const uint32_t bits = bits_of_float(scale);
  if (bits <= bits_of_float(0x1p-127f)) return 0x1p-127f;  // subnormal, and the smallest of e8m0
  return packed::reinterpret_bits<float>((bits + 0x7fffffu) & 0x7f800000u);
}
FASTGEMM_ANYWHERE void store_scale(ScaleType type, void* scales, int64_t i, float scale) {
  if (type == ScaleType::f32)
    static_cast<float*>(scales)[i] = scale;
  else
    static_cast<uint8_t*>(scales)[i] = scale != scale ? uint8_t(255) : uint8_t(bits_of_float(scale) >> 23);
}
FASTGEMM_ANYWHERE float quotient(float x, float scale) {
  return scale == 0.0f ? x * 0.0f : x / scale;  // zeros remain; the modulus was too small
}
template <Fp8 code>
FASTGEMM_ANYWHERE uint32_t quantized(float x, float scale) {
  return encode<code>(quotient(x, scale));
}

}  // namespace fp8

namespace cpu {
void run_widen_fp8(const WidenFp8&, Context&);
void run_quantize_fp8(const QuantizeFp8&, Context&);
}  // namespace cpu
namespace cuda {  // where the CUDA code was built
void run_widen_fp8(const WidenFp8&, Context&);
void run_quantize_fp8(const QuantizeFp8&, Context&);
}  // namespace cuda
namespace simt {
void run_widen_fp8(const WidenFp8&, Context&);
void run_quantize_fp8(const QuantizeFp8&, Context&);
}  // namespace simt

}  // namespace fastgemm
