// Maps the element type of a problem to the type that kernels are instantiated for.
#pragma once

#include "core/problem.h"
#include "cuda/device/numeric.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T>
inline constexpr DType kDType = std::is_same_v<T, double>                        ? DType::f64
                                : std::is_same_v<T, float>                       ? DType::f32
                                : std::is_same_v<T, Half>                        ? DType::f16
                                : std::is_same_v<T, BFloat16>                    ? DType::bf16
                                : std::is_same_v<T, int8_t>                      ? DType::i8
                                : std::is_same_v<T, int64_t>                     ? DType::i64
                                : std::is_same_v<T, uint8_t>                     ? DType::u8
                                : std::is_same_v<T, int16_t>                     ? DType::i16
                                : std::is_same_v<T, MixedBytes<uint8_t, int8_t>> ? DType::u8i8
                                : std::is_same_v<T, MixedBytes<int8_t, uint8_t>> ? DType::i8u8
                                : std::is_same_v<T, LongInt16>                   ? DType::i16i64
                                                                                 : DType::i32;

// Whether this build has the kernels of a type. The sanitizers run three types only (csrc/simt/simt.cmake).
// For .ci/run nvcc leaves out types whose kernels are like those of another one (csrc/cuda/cuda.cmake).
template <class T>
inline constexpr bool kIsBuilt =
#if FASTGEMM_THREE_TYPES
    std::is_same_v<T, float> || std::is_same_v<T, BFloat16> || std::is_same_v<T, int8_t>;
#elif FASTGEMM_NO_TWINS
    kDType<T> != DType::f16 && kDType<T> != DType::u8 && kDType<T> != DType::u8i8 && kDType<T> != DType::i8u8;
#else
    true;
#endif
[[noreturn]] void not_built();

// Calls body.operator()<T>() with the type T of the list that `type` stands for.
template <class... T, class Body>
void with_element(DType type, Body&& body) {
  const auto call = [&]<class U>() {
    if constexpr (kIsBuilt<U>)
      body.template operator()<U>();
    else
      not_built();
  };
  ((type == kDType<T> ? call.template operator()<T>() : void()), ...);
}
template <class Body>
void with_any_element(DType type, Body&& body) {
  with_element<double, float, Half, BFloat16, int8_t, int32_t, int64_t, uint8_t, int16_t>(type, body);
}

// Scalars arrive as doubles. For integers they are whole numbers, taken modulo 2^32 or 2^64.
template <class Acc>
Acc scalar_of(double x) {
  return std::is_integral_v<Acc> ? Acc(int64_t(x)) : Acc(x);
}

}  // namespace fastgemm::FASTGEMM_TARGET
