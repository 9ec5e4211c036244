// Codes, scales and zeros of packed weights (core/packed_weight.h) as vectors of float32.
#pragma once

#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {
namespace weights {

using V = Vector<float>;
using Bits = Vector<uint32_t>;
constexpr int N = kLanes<float>;

// An exponent of 0 is stored as 7 in e4m3 and as 127 in float32. The processor may be set to take subnormal
// floats as zero. So subnormal numbers are computed without them: as (1 + m / 8) 2^-6 - 2^-6.
FASTGEMM_INLINE V e4m3_to_float(Bits bytes) {
  const Bits magnitude = bytes & 0x7fu, sign = (bytes & 0x80u) << 24, shifted = magnitude << 20;
  const V normal = (V)(shifted + (120u << 23)), subnormal = (V)(shifted + (121u << 23)) - 0x1p-6f;
  const Bits x = magnitude < 8u ? (Bits)subnormal : (Bits)normal;
  return (V)((magnitude == 0x7fu ? x | 0x7fc00000u : x) | sign);
}
FASTGEMM_INLINE V e8m0_to_float(Bits bytes) {
  const Bits x = bytes == 0u ? broadcast<Bits>(0x00400000u) : bytes << 23;
  return (V)(bytes == 255u ? broadcast<Bits>(0x7fc00000u) : x);
}

// The last numbers are converted one by one: a vector that is loaded after its elements were stored waits for
// all of them.
template <class T, class Convert, class One>
FASTGEMM_INLINE void convert_all(const T* from, int64_t count, float* to, Convert&& convert, One&& one) {
  int64_t i = 0;
  for (; i + N <= count; i += N) store(to + i, convert(from + i));
  for (; i < count; ++i) to[i] = one(from[i]);
}

// Scales, or zeros of their type, as float32.
__attribute__((noinline)) inline void read_numbers(ScaleType type, const void* numbers, int64_t first,
                                                   int64_t count, float* to) {
  const auto* bytes = static_cast<const uint8_t*>(numbers) + first * size_of(type);
  switch (type) {
    case ScaleType::f32:
      __builtin_memcpy(to, bytes, count * sizeof(float));
      return;
    case ScaleType::bf16:
      return convert_all(
          reinterpret_cast<const BFloat16*>(bytes), count, to,
          [](const BFloat16* p) { return load_widened(p); }, [](BFloat16 x) { return widen(x); });
    case ScaleType::f16:
      return convert_all(
          reinterpret_cast<const Half*>(bytes), count, to, [](const Half* p) { return load_widened(p); },
          [](Half x) { return widen(x); });
    case ScaleType::e8m0:
      return convert_all(
          bytes, count, to, [](const uint8_t* p) { return e8m0_to_float(load_extended<uint32_t>(p)); },
          [](uint8_t x) { return e8m0_to_float(broadcast<Bits>(uint32_t{x}))[0]; });
    case ScaleType::e4m3:
      return convert_all(
          bytes, count, to, [](const uint8_t* p) { return e4m3_to_float(load_extended<uint32_t>(p)); },
          [](uint8_t x) { return e4m3_to_float(broadcast<Bits>(uint32_t{x}))[0]; });
    default:
      for (int64_t i = 0; i < count; ++i) to[i] = 1.0f;
  }
}
__attribute__((noinline)) inline void read_zeros(const PackedWeight& w, int64_t first, int64_t count,
                                                 float* to) {
  if (w.zero == Zero::added) return read_numbers(w.scale, w.zeros, first, count, to);
  for (int64_t i = 0; i < count; ++i)
    to[i] = w.zero == Zero::none ? 0.0f : static_cast<const int8_t*>(w.zeros)[first + i];
}

// Converts the codes of a group to weights.
struct Group {
  Zero mode;
  float scale, zero;
  const float* global;

  FASTGEMM_INLINE bool is_one() const { return mode == Zero::none && scale == 1.0f && !global; }
  template <class X>
  FASTGEMM_INLINE X weight_of(X code) const {
    const X x = mode == Zero::added        ? code * scale + zero
                : mode == Zero::subtracted ? (code - zero) * scale
                                           : code * scale;
    return global ? x * *global : x;
  }
};

template <bool kFloating>
FASTGEMM_INLINE V load_codes(const uint8_t* p) {
#if defined(__F16C__)
  if constexpr (kFloating) {
    // The bits of float16, whose exponent is larger by 8. The conversion also takes subnormal numbers,
    // whatever the processor does with those of float32. The code of NaN gets float16's exponent of NaN.
#if defined(__AVX512F__)
    const __m128i bytes = load<__m128i>(p);
    const __m256i halves =
        _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16(short(0xbfff)));
    const __mmask16 number =
        _mm_cmpneq_epi8_mask(_mm_or_si128(bytes, _mm_set1_epi8(-128)), _mm_set1_epi8(-1));
    return (V)_mm512_mask_cvtph_ps(_mm512_set1_ps(__builtin_nanf("")), number, halves) * 256.0f;
#else
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i halves =
        _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7), _mm_set1_epi16(short(0xbfff)));
    const __m128i nan =
        _mm_cmpeq_epi16(_mm_and_si128(halves, _mm_set1_epi16(0x7fff)), _mm_set1_epi16(0x3f80));
    return (V)_mm256_cvtph_ps(_mm_or_si128(halves, _mm_and_si128(nan, _mm_set1_epi16(0x7c00)))) * 256.0f;
#endif
  }
#endif
  if constexpr (kFloating) return e4m3_to_float(load_extended<uint32_t>(p));
  return __builtin_convertvector((Vector<int32_t>)load_extended<int32_t>(reinterpret_cast<const int8_t*>(p)),
                                 V);
}
#if defined(__AVX512BW__)
// The same for bfloat16, where an exponent of 0 is stored as 127, too.
FASTGEMM_INLINE __m512i e4m3_to_bf16(const uint8_t* p) {
  alignas(64) static constexpr uint16_t kSubnormal[32] = {0,      0x3b00, 0x3b80, 0x3bc0,
                                                          0x3c00, 0x3c20, 0x3c40, 0x3c60};
  const __m512i codes = _mm512_cvtepi8_epi16(load<__m256i>(p));
  const __m512i magnitude = _mm512_and_si512(_mm512_slli_epi16(codes, 4), _mm512_set1_epi16(0x7f0));
  __m512i x = _mm512_add_epi16(magnitude, _mm512_set1_epi16(120 << 7));
  x = _mm512_mask_permutexvar_epi16(x, _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x78)), codes,
                                    load<__m512i>(kSubnormal));
  x = _mm512_mask_mov_epi16(x, _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f0)),
                            _mm512_set1_epi16(0x7fc0));
  return _mm512_or_si512(x, _mm512_and_si512(codes, _mm512_set1_epi16(short(0x8000))));
}
#endif
// The numbers of the formats of 4 bits.
struct Tables {
  alignas(64) float of[3][16];
  Tables() {
    for (unsigned i = 0; i < 16; ++i) {
      of[0][i] = packed::decode(Code::int4, i);
      of[1][i] = packed::decode(Code::nf4, i);
      of[2][i] = packed::decode(Code::e2m1, i);
    }
  }
};
inline const float* numbers_of(Code code) {
  static const Tables tables;
  return tables.of[static_cast<int>(code) - static_cast<int>(Code::int4)];
}

}  // namespace weights
}  // namespace fastgemm::FASTGEMM_ISA
