// Element types as stored in memory, their accumulator types, and scalar conversions.
//
// Every header of this folder is compiled several times, once per instruction set, and puts its code into
// the namespace of that instruction set. A function shared between them would be merged by the linker,
// which might keep the AVX-512 copy for a processor without AVX-512. For the same reason these headers
// use no std algorithms and no std::function.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/problem.h"

#ifndef FASTGEMM_ISA
#define FASTGEMM_ISA scalar
#endif

namespace fastgemm::FASTGEMM_ISA {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <class To, class From>
inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

template <class T>
constexpr T min(T x, T y) {
  return y < x ? y : x;
}
template <class T>
constexpr T max(T x, T y) {
  return x < y ? y : x;
}
constexpr int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
constexpr int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }

inline float to_float(BFloat16 x) { return bit_cast<float>(uint32_t{x.bits} << 16); }

// Branch-free, so that compilers can vectorize it. A subnormal number is a multiple of 2^-24, the last bit of
// 0.5f. So nothing here is subnormal in float32, which torch.set_flush_denormal would make 0. Infinities and
// NaNs keep their exponent bits.
inline float to_float(Half x) {
  const uint32_t magnitude = x.bits & 0x7fffu, sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t small = bit_cast<uint32_t>(bit_cast<float>(magnitude + 0x3f000000u) - 0.5f);
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return bit_cast<float>((magnitude < 0x400u ? small : normal) | special | sign);
}

// Rounds to nearest even. NaN stays NaN: rounding must not turn it into infinity.
inline BFloat16 to_bfloat16(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

inline Half to_half(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: the last bit of 0.5f is 2^-24, so the addition rounds
    half = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return {static_cast<uint16_t>(half | sign)};
}

// Integers accumulate modulo 2^32, int64 modulo 2^64. The accumulators are unsigned, because signed overflow
// is undefined.
template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <>
struct AccumulatorOf<int8_t> {
  using type = uint32_t;
};
template <>
struct AccumulatorOf<uint8_t> {
  using type = uint32_t;
};
template <>
struct AccumulatorOf<int16_t> {
  using type = uint32_t;
};
template <>
struct AccumulatorOf<uint32_t> {
  using type = uint32_t;
};
template <>
struct AccumulatorOf<uint64_t> {
  using type = uint64_t;
};
// Integers that are widened to int16, so that one instruction multiplies pairs of them (simd.h).
template <class T>
inline constexpr bool kIsNarrowInteger = std::is_integral_v<T> && sizeof(T) < 4;
// A complex number as stored in memory.
template <class T>
struct Complex {
  T re, im;

  friend Complex operator+(Complex x, Complex y) { return {x.re + y.re, x.im + y.im}; }
  friend Complex operator*(T scale, Complex x) { return {scale * x.re, scale * x.im}; }
  Complex& operator+=(Complex x) { return *this = *this + x; }
};
template <class T>
struct AccumulatorOf<Complex<T>> {
  using type = Complex<T>;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

// The type of alpha and beta. They are real for complex sums.
template <class Acc>
struct ScaleOf {
  using type = Acc;
};
template <class T>
struct ScaleOf<Complex<T>> {
  using type = T;
};
template <class Acc>
using Scale = typename ScaleOf<Acc>::type;
template <class T>
inline constexpr bool kIsComplex = !std::is_same_v<Scale<T>, T>;

template <class T>
inline Accumulator<T> widen(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return to_float(x);
  } else if constexpr (kIsNarrowInteger<T>) {
    return static_cast<uint32_t>(int32_t{x});
  } else {
    return x;
  }
}

template <class T, class Acc>
inline T round_to(Acc x) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(x);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(x);
  } else {
    return x;
  }
}

// alpha or beta in the accumulator's type. For integers they are whole numbers, and they wrap.
template <class Acc>
inline Acc scalar_of(double x) {
  if constexpr (std::is_integral_v<Acc>) {
    return static_cast<Acc>(static_cast<int64_t>(x));
  } else {
    return static_cast<Acc>(x);
  }
}

// Calls f.template operator()<Element>() with the element type of `type`.
template <class F>
inline void with_element(DType type, F&& f) {
  switch (type) {
    case DType::f64:
      return f.template operator()<double>();
    case DType::f32:
      return f.template operator()<float>();
    case DType::f16:
      return f.template operator()<Half>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::i8:
      return f.template operator()<int8_t>();
    case DType::i32:
      return f.template operator()<uint32_t>();
    case DType::i64:
      return f.template operator()<uint64_t>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    case DType::i16:
      return f.template operator()<int16_t>();
    default:
      __builtin_unreachable();
  }
}

// Calls f.template operator()<Element, Out>(). Half types may have a float32 result.
template <class F>
inline void with_types(const GemmProblem& p, F&& f) {
  with_element(p.type, [&]<class T>() {
    if (p.out_type == p.type || std::is_integral_v<T>) {
      f.template operator()<T, std::conditional_t<std::is_integral_v<T>, Accumulator<T>, T>>();
    } else if constexpr (!std::is_integral_v<T>) {
      f.template operator()<T, Accumulator<T>>();
    }
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
