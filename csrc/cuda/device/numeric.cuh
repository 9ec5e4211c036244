// The element types as bits in memory, their accumulator types, and the conversions between the two.
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
// An element of a product of bytes whose operands differ in sign: A has elements of the first type, B of the
// second.
template <class A, class B>
struct MixedBytes {
  uint8_t bits;
};
// int16 whose products are summed in 64 bits.
struct LongInt16 {
  int16_t bits;
};

// The type in which products of T are accumulated. Integers wrap modulo 2^32, int64 modulo 2^64; the types
// are unsigned, because C++ defines wrapping only for these.
template <class T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<Half> {
  using type = float;
};
template <>
struct AccumulatorOf<BFloat16> {
  using type = float;
};
template <>
struct AccumulatorOf<int8_t> {
  using type = uint32_t;
};
template <>
struct AccumulatorOf<uint8_t> {
  using type = uint32_t;
};
template <class A, class B>
struct AccumulatorOf<MixedBytes<A, B>> {
  using type = uint32_t;
};
template <>
struct AccumulatorOf<int16_t> {
  using type = uint32_t;
};
template <>
struct AccumulatorOf<LongInt16> {
  using type = uint64_t;
};
template <>
struct AccumulatorOf<int32_t> {
  using type = uint32_t;
};
template <>
struct AccumulatorOf<int64_t> {
  using type = uint64_t;
};
template <class T>
inline constexpr bool kIsLong = std::is_same_v<T, LongInt16>;
template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

// The wider type that results of T may have.
template <class T>
using WideResult = std::conditional_t<kIsLong<T>, int64_t, float>;

// The elements of A and of B in a product of T.
template <class T>
struct ElementsOf {
  using A = T;
  using B = T;
};
template <class A_, class B_>
struct ElementsOf<MixedBytes<A_, B_>> {
  using A = A_;
  using B = B_;
};

__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ uint32_t widen(int8_t x) { return uint32_t(int32_t(x)); }
__device__ __forceinline__ uint32_t widen(uint8_t x) { return x; }
__device__ __forceinline__ uint32_t widen(int16_t x) { return uint32_t(int32_t(x)); }
__device__ __forceinline__ uint32_t widen(int32_t x) { return uint32_t(x); }
__device__ __forceinline__ uint64_t widen(int64_t x) { return uint64_t(x); }
#if defined(__CUDACC__)
// PTX, because CUDA's headers for 16-bit types take as long to read as all else that most files include.
__device__ __forceinline__ float widen(Half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
#else
__device__ __forceinline__ float widen(Half x) { return half_to_float(x.bits); }
#endif
__device__ __forceinline__ float widen(BFloat16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }

// Rounds to nearest even where Out is narrower than its accumulator.
template <class Out>
__device__ __forceinline__ Out round_to(Accumulator<Out> x) {
  return Out(x);
}
template <>
__device__ __forceinline__ Half round_to<Half>(float x) {
#if defined(__CUDACC__)
  Half y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  return {float_to_half(x)};
#endif
}
template <>
__device__ __forceinline__ BFloat16 round_to<BFloat16>(float x) {
#if defined(__CUDACC__)
  BFloat16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  return {float_to_bfloat16(x)};
#endif
}

// Rounds two neighbouring elements into one register, the first one in the low half.
template <class Out>
__device__ __forceinline__ uint32_t round_pair(float first, float second) {
#if defined(__CUDACC__)
  uint32_t pair;
  if constexpr (std::is_same_v<Out, Half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return round_to<Out>(first).bits | uint32_t(round_to<Out>(second).bits) << 16;
#endif
}

__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) { return a * b + c; }
__device__ __forceinline__ uint64_t multiply_add(uint64_t a, uint64_t b, uint64_t c) { return a * b + c; }

// The words of a double.
__device__ __forceinline__ uint32_t low_word(double x) { return uint32_t(__double2loint(x)); }
__device__ __forceinline__ uint32_t high_word(double x) { return uint32_t(__double2hiint(x)); }
__device__ __forceinline__ double from_words(uint32_t high, uint32_t low) {
  return __hiloint2double(int32_t(high), int32_t(low));
}

// The upper 32 bits of a product of 64 bits.
__device__ __forceinline__ int32_t multiply_high(int32_t a, int32_t b) { return __mulhi(a, b); }

// c + the sum of four products of signed bytes, modulo 2^32.
__device__ __forceinline__ uint32_t dot4(uint32_t a, uint32_t b, uint32_t c) {
  return uint32_t(__dp4a(int32_t(a), int32_t(b), int32_t(c)));
}

}  // namespace fastgemm::FASTGEMM_TARGET
