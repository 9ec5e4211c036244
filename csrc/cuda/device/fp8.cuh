// 8-bit floating-point numbers (core/fp8.h) on a GPU: their conversion, and their products by wgmma.
#pragma once

#include "core/fp8.h"
#include "cuda/device/wgmma.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The codes of two finite numbers, the first in the low byte. (GPUs since sm_89 have an instruction for it.
// It turns infinity into the largest code.)
template <Fp8 code>
__device__ __forceinline__ uint32_t encode_finite_pair(float first, float second) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  uint16_t pair;
  if constexpr (code == Fp8::e4m3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return fp8::encode<code>(first) | fp8::encode<code>(second) << 8;
#endif
}

struct E4M3 {
  uint8_t bits;
};
struct E5M2 {
  uint8_t bits;
};
// An element of a product: A has elements of the first type, B of the second.
template <class A, class B>
struct Fp8Pair {
  uint8_t bits;
};
template <>
struct AccumulatorOf<E4M3> {
  using type = float;
};
template <>
struct AccumulatorOf<E5M2> : AccumulatorOf<E4M3> {};
template <class A, class B>
struct AccumulatorOf<Fp8Pair<A, B>> : AccumulatorOf<E4M3> {};
template <class A_, class B_>
struct ElementsOf<Fp8Pair<A_, B_>> {
  using A = A_;
  using B = B_;
};

#if defined(__CUDACC__)

template <Major... majors>
struct WgmmaText<Fp8Pair<E4M3, E4M3>, majors...> {
  static constexpr char kTypes[] = "k32.f32.e4m3.e4m3", kTail[] = ", 1, 1";
};
template <Major... majors>
struct WgmmaText<Fp8Pair<E4M3, E5M2>, majors...> {
  static constexpr char kTypes[] = "k32.f32.e4m3.e5m2", kTail[] = ", 1, 1";
};
template <Major... majors>
struct WgmmaText<Fp8Pair<E5M2, E4M3>, majors...> {
  static constexpr char kTypes[] = "k32.f32.e5m2.e4m3", kTail[] = ", 1, 1";
};
template <Major... majors>
struct WgmmaText<Fp8Pair<E5M2, E5M2>, majors...> {
  static constexpr char kTypes[] = "k32.f32.e5m2.e5m2", kTail[] = ", 1, 1";
};

#endif

}  // namespace fastgemm::FASTGEMM_TARGET
