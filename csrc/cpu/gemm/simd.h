// SIMD in GCC vector extensions, as wide as the instruction set of this translation unit allows. The portable
// part compiles for any processor; intrinsics are used only for instructions that the language cannot express
// (half conversion, pair products), each beside its portable form.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <utility>

#include "cpu/gemm/element.h"

#define FASTGEMM_INLINE inline __attribute__((always_inline))

namespace fastgemm::FASTGEMM_ISA {

// In a loop over the few elements that fill no vector: keeps the compiler from vectorizing it in several
// versions, which would take more code and time of compilation than the loop over vectors.
FASTGEMM_INLINE void keep_scalar() { asm volatile(""); }

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T, int N>
struct VectorType {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
  typedef T unaligned __attribute__((vector_size(N * sizeof(T)), aligned(1), may_alias));
};
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <class T, int N = kLanes<T>>
using Vector = typename VectorType<T, N>::type;

template <class V, class T>
FASTGEMM_INLINE V load(const T* p) {
  using Unaligned =
      typename VectorType<std::remove_cvref_t<decltype(V{}[0])>, sizeof(V) / sizeof(V{}[0])>::unaligned;
  return *reinterpret_cast<const Unaligned*>(p);
}
template <class V, class T>
FASTGEMM_INLINE void store(T* p, V v) {
  using Unaligned =
      typename VectorType<std::remove_cvref_t<decltype(V{}[0])>, sizeof(V) / sizeof(V{}[0])>::unaligned;
  *reinterpret_cast<Unaligned*>(p) = v;
}
// x - 0, not x + 0, which would turn -0 into +0.
template <class V, class T>
FASTGEMM_INLINE V broadcast(T x) {
  return x - V{};
}

// x0 y0 x1 y1 ... of the lower (upper) halves of x and y.
template <class V, int... I>
FASTGEMM_INLINE V zip_low(V x, V y, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return __builtin_shufflevector(x, y, ((I % 2) * n + I / 2)...);
}
template <class V, int... I>
FASTGEMM_INLINE V zip_high(V x, V y, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return __builtin_shufflevector(x, y, ((I % 2) * n + n / 2 + I / 2)...);
}

// x0 x2 ... y0 y2 ... (x1 x3 ... y1 y3 ...).
template <class V, int... I>
FASTGEMM_INLINE V unzip_even(V x, V y, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, y, (2 * I)...);
}
template <class V, int... I>
FASTGEMM_INLINE V unzip_odd(V x, V y, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, y, (2 * I + 1)...);
}

// An N x N transpose in registers: log2(N) perfect shuffles of the whole block, N log2(N) instructions.
template <class V, int N>
FASTGEMM_INLINE void transpose(V (&r)[N]) {
  using Indices = std::make_integer_sequence<int, N>;
#pragma GCC unroll 8
  for (int stage = 1; stage < N; stage *= 2) {
    V t[N];
#pragma GCC unroll 16
    for (int i = 0; i < N / 2; ++i) {
      t[2 * i] = zip_low(r[i], r[i + N / 2], Indices{});
      t[2 * i + 1] = zip_high(r[i], r[i + N / 2], Indices{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) r[i] = t[i];
  }
}

// Loads as many numbers as fit in a vector of To, and widens them. A single instruction can do this, but GCC
// 12 takes five to widen 16 to 32 bits, and sixty to widen 8 to 32 bits one by one: packing int8 took seven
// times as long.
template <class To, class From>
FASTGEMM_INLINE Vector<To> load_extended(const From* p) {
  [[maybe_unused]] constexpr bool kFrom8 = sizeof(From) == 1, kTo16 = sizeof(To) == 2,
                                  kSigned = std::is_signed_v<From>;
  static_assert(sizeof(From) < sizeof(To) && sizeof(To) <= 4);
#if defined(__AVX512BW__)  // maskz forms with a full mask, because GCC 12 warns about the plain ones
  if constexpr (kTo16 && kSigned) return (Vector<To>)_mm512_maskz_cvtepi8_epi16(0xffffffff, load<__m256i>(p));
  if constexpr (kTo16) return (Vector<To>)_mm512_maskz_cvtepu8_epi16(0xffffffff, load<__m256i>(p));
  if constexpr (kFrom8 && kSigned) return (Vector<To>)_mm512_maskz_cvtepi8_epi32(0xffff, load<__m128i>(p));
  if constexpr (kFrom8) return (Vector<To>)_mm512_maskz_cvtepu8_epi32(0xffff, load<__m128i>(p));
  if constexpr (kSigned) return (Vector<To>)_mm512_maskz_cvtepi16_epi32(0xffff, load<__m256i>(p));
  return (Vector<To>)_mm512_maskz_cvtepu16_epi32(0xffff, load<__m256i>(p));
#elif defined(__AVX2__)
  if constexpr (kTo16 && kSigned) return (Vector<To>)_mm256_cvtepi8_epi16(load<__m128i>(p));
  if constexpr (kTo16) return (Vector<To>)_mm256_cvtepu8_epi16(load<__m128i>(p));
  if constexpr (kFrom8 && kSigned)
    return (Vector<To>)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  if constexpr (kFrom8)
    return (Vector<To>)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  if constexpr (kSigned) return (Vector<To>)_mm256_cvtepi16_epi32(load<__m128i>(p));
  return (Vector<To>)_mm256_cvtepu16_epi32(load<__m128i>(p));
#elif defined(__aarch64__)
  const auto widened = [](uint8x8_t bytes) {
    return kSigned ? (uint16x8_t)vmovl_s8((int8x8_t)bytes) : vmovl_u8(bytes);
  };
  if constexpr (kTo16) return (Vector<To>)widened(load<uint8x8_t>(p));
  uint16x4_t halves;
  if constexpr (kFrom8)
    halves = vget_low_u16(widened((uint8x8_t)vdup_n_u32(load<VectorType<uint32_t, 1>::unaligned>(p)[0])));
  else
    halves = load<uint16x4_t>(p);
  return kSigned ? (Vector<To>)vmovl_s16((int16x4_t)halves) : (Vector<To>)vmovl_u16(halves);
#else
  return __builtin_convertvector((load<Vector<From, kLanes<To>>>(p)), Vector<To>);
#endif
}

// Loads elements for one vector of accumulators, widened to the accumulator's type.
template <class T>
FASTGEMM_INLINE Vector<Accumulator<T>> load_widened(const T* p) {
  using Acc = Accumulator<T>;
  if constexpr (std::is_same_v<T, Acc>) {
    return load<Vector<Acc>>(p);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return reinterpret_cast<Vector<float>>(load_extended<uint32_t>(reinterpret_cast<const uint16_t*>(p))
                                           << 16);
  } else if constexpr (kIsNarrowInteger<T>) {
    return reinterpret_cast<Vector<uint32_t>>(load_extended<int32_t>(p));
  } else {
#if defined(__AVX512F__)
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__aarch64__)
    return (Vector<float>)vcvt_f32_f16((float16x4_t)load<uint16x4_t>(p));
#else
    Vector<float> v;
    for (int i = 0; i < kLanes<Acc>; ++i) v[i] = to_float(p[i]);
    return v;
#endif
  }
}

// The inverse, rounded once to nearest even.
template <class T, class Acc>
FASTGEMM_INLINE void store_narrowed(T* p, Vector<Acc> v) {
  if constexpr (std::is_same_v<T, Acc>) {
    store(p, v);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
#if defined(__AVX512BF16__)  // flushes subnormal numbers, as the dot product of the same unit does
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
#else
    using Bits = Vector<uint32_t>;
    const Bits bits = reinterpret_cast<Bits>(v);
    const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const Bits quiet = (bits >> 16) | 0x40u;
    const Bits chosen = (bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
    store(p, __builtin_convertvector(chosen, Vector<uint16_t, kLanes<uint32_t>>));
#endif
  } else {
#if defined(__AVX512F__)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
    store(p, (uint16x4_t)vcvt_f16_f32((float32x4_t)v));
#else
    for (int i = 0; i < kLanes<float>; ++i) p[i] = to_half(v[i]);
#endif
  }
}

// A vector of floating-point numbers in memory: a whole one, or its first `count` numbers. Behind these,
// zeros are read and nothing is written.
struct WholeVector {
  template <class T>
  FASTGEMM_INLINE Vector<Accumulator<T>> load(const T* p) const {
    return load_widened(p);
  }
  template <class T>
  FASTGEMM_INLINE void store(T* p, Vector<Accumulator<T>> v) const {
    store_narrowed<T, Accumulator<T>>(p, v);
  }
};
struct PartOfVector {
  int count;

  template <class T>
  FASTGEMM_INLINE Vector<Accumulator<T>> load(const T* p) const {
    T part[kLanes<Accumulator<T>>] = {};
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    if constexpr (sizeof(T) == 2)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(part), _mm256_maskz_loadu_epi16(mask(), p));
    else if constexpr (sizeof(T) == 4)
      _mm512_storeu_si512(part, _mm512_maskz_loadu_epi32(mask(), p));
    else
      _mm512_storeu_si512(part, _mm512_maskz_loadu_epi64(mask(), p));
#else
    for (int l = 0; l < count; ++l) keep_scalar(), part[l] = p[l];
#endif
    return load_widened(part);
  }
  template <class T>
  FASTGEMM_INLINE void store(T* p, Vector<Accumulator<T>> v) const {
    T part[kLanes<Accumulator<T>>];
    store_narrowed<T, Accumulator<T>>(part, v);
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    if constexpr (sizeof(T) == 2)
      _mm256_mask_storeu_epi16(p, mask(), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(part)));
    else if constexpr (sizeof(T) == 4)
      _mm512_mask_storeu_epi32(p, mask(), _mm512_loadu_si512(part));
    else
      _mm512_mask_storeu_epi64(p, mask(), _mm512_loadu_si512(part));
#else
    for (int l = 0; l < count; ++l) keep_scalar(), p[l] = part[l];
#endif
  }

 private:
  FASTGEMM_INLINE uint16_t mask() const { return static_cast<uint16_t>((1u << count) - 1); }
};

// Without AVX-512, 64-bit lanes are multiplied by 32-bit products, if there is an instruction for these.
#if (defined(__AVX2__) && !defined(__AVX512DQ__)) || defined(__aarch64__)
inline constexpr bool kMultipliesHalves = true;
#else
inline constexpr bool kMultipliesHalves = false;
#endif

// Multiplies the lower halves of 64-bit lanes. The products have 64 bits.
FASTGEMM_INLINE Vector<uint64_t> low_product(Vector<uint64_t> x, Vector<uint64_t> y) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return (Vector<uint64_t>)_mm256_mul_epu32((__m256i)x, (__m256i)y);
#elif defined(__aarch64__)
  return (Vector<uint64_t>)vmull_u32(vmovn_u64((uint64x2_t)x), vmovn_u64((uint64x2_t)y));
#else
  return (x & 0xffffffffu) * (y & 0xffffffffu);
#endif
}
// Exchanges the two halves of each 64-bit lane.
FASTGEMM_INLINE Vector<uint32_t> exchange_halves(Vector<uint64_t> x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return (Vector<uint32_t>)_mm256_shuffle_epi32((__m256i)x, 0xb1);
#elif defined(__aarch64__)
  return (Vector<uint32_t>)vrev64q_u32((uint32x4_t)x);
#else
  return (Vector<uint32_t>)(x << 32 | x >> 32);
#endif
}

// acc + the products of the two int16 in each 32-bit lane.
FASTGEMM_INLINE Vector<uint32_t> add_pair_products(Vector<uint32_t> acc, Vector<uint32_t> x,
                                                   Vector<uint32_t> y) {
#if defined(__AVX512BW__)
  return acc + (Vector<uint32_t>)_mm512_madd_epi16((__m512i)x, (__m512i)y);
#elif defined(__AVX2__)
  return acc + (Vector<uint32_t>)_mm256_madd_epi16((__m256i)x, (__m256i)y);
#elif defined(__SSE2__)
  return acc + (Vector<uint32_t>)_mm_madd_epi16((__m128i)x, (__m128i)y);
#elif defined(__aarch64__)
  const auto sx = (int16x8_t)x, sy = (int16x8_t)y;
  const int32x4_t low = vmull_s16(vget_low_s16(sx), vget_low_s16(sy)), high = vmull_high_s16(sx, sy);
  return acc + (Vector<uint32_t>)vpaddq_s32(low, high);
#else
  using Signed = Vector<int32_t>;
  const Signed sx = (Signed)x, sy = (Signed)y;
  const Signed low = ((Signed)(x << 16) >> 16) * ((Signed)(y << 16) >> 16);
  return acc + (Vector<uint32_t>)low + (Vector<uint32_t>)((sx >> 16) * (sy >> 16));
#endif
}

}  // namespace fastgemm::FASTGEMM_ISA
