// Arithmetic on pairs of 16-bit floating-point numbers that share a register, the first one in the low half.
// T is Half or BFloat16. Each result is rounded once; subnormal numbers are kept.
#pragma once

#include "cuda/device/numeric.cuh"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace fastgemm::FASTGEMM_TARGET {

// The same number twice.
template <class T>
__device__ __forceinline__ uint32_t pair_of(float x) {
  return round_to<T>(x).bits * 0x10001u;
}
template <class T>
__device__ __forceinline__ float low_of(uint32_t pair) {
  return widen(T{uint16_t(pair)});
}
template <class T>
__device__ __forceinline__ float high_of(uint32_t pair) {
  return widen(T{uint16_t(pair >> 16)});
}

#if defined(__CUDACC__)

template <class T>
using NativePair = std::conditional_t<std::is_same_v<T, Half>, __half2, __nv_bfloat162>;

template <class T>
__device__ __forceinline__ NativePair<T> native_pair(uint32_t x) {
  return *reinterpret_cast<const NativePair<T>*>(&x);
}
template <class Native>
__device__ __forceinline__ uint32_t pair_bits(const Native& x) {
  return *reinterpret_cast<const uint32_t*>(&x);
}

// (x & mask) | bits in one instruction. The compiler would take two instructions, because one has room for
// only one constant. Here both constants are in registers, which a loop loads once.
__device__ __forceinline__ uint32_t and_or(uint32_t x, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(bits));
  return result;
}

template <class T>
__device__ __forceinline__ uint32_t subtract_pairs(uint32_t a, uint32_t b) {
  return pair_bits(__hsub2(native_pair<T>(a), native_pair<T>(b)));
}
template <class T>
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  return pair_bits(__hmul2(native_pair<T>(a), native_pair<T>(b)));
}
template <class T>
__device__ __forceinline__ uint32_t multiply_add_pairs(uint32_t a, uint32_t b, uint32_t c) {
  return pair_bits(__hfma2(native_pair<T>(a), native_pair<T>(b), native_pair<T>(c)));
}

#else

__forceinline__ uint32_t and_or(uint32_t x, uint32_t mask, uint32_t bits) { return (x & mask) | bits; }

// Float32 results of subtraction and multiplication round to the same 16 bits as exact results do: float32
// has 24 bits, and twice the precision of a 16-bit type, plus two, is at most 24.

template <class T>
__forceinline__ uint32_t subtract_pairs(uint32_t a, uint32_t b) {
  return round_pair<T>(low_of<T>(a) - low_of<T>(b), high_of<T>(a) - high_of<T>(b));
}
template <class T>
__forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  return round_pair<T>(low_of<T>(a) * low_of<T>(b), high_of<T>(a) * high_of<T>(b));
}
// Rounds twice in rare cases; kernels use it where results are exact, or nearly round anyway.
template <class T>
__forceinline__ uint32_t multiply_add_pairs(uint32_t a, uint32_t b, uint32_t c) {
  return round_pair<T>(fmaf(low_of<T>(a), low_of<T>(b), low_of<T>(c)),
                       fmaf(high_of<T>(a), high_of<T>(b), high_of<T>(c)));
}

#endif

// Two numbers of e4m3 (fp8) in the low bytes, as numbers of T.
template <class T>
__device__ __forceinline__ uint32_t pair_of_e4m3(uint32_t bytes) {
  uint32_t halves;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(uint16_t(bytes)));
#else
  // Exponent and mantissa move to their places; a factor corrects the bias. The magnitude 127 carries into
  // the sign, and becomes the exponent of NaN.
  const uint32_t upper = __byte_perm(bytes, 0, 0x1404),
                 nan = ((upper & 0x7f007f00u) + 0x01000100u) & 0x80008000u;
  halves = multiply_pairs<Half>((upper & 0x80008000u) | (upper >> 1 & 0x3f803f80u), pair_of<Half>(256));
  halves |= nan - (nan >> 8);
#endif
  if constexpr (std::is_same_v<T, Half>) return halves;
  return round_pair<T>(low_of<Half>(halves), high_of<Half>(halves));
}
}  // namespace fastgemm::FASTGEMM_TARGET
