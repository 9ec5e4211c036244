// How bf16 and int8 elements become the 4-byte units of the dot-product instructions: the 2 or 4
// consecutive k of one row of A, or one column of B, that a lane multiplies and adds in one step.
#pragma once

#include "cpu/gemm/pack.h"

namespace fastgemm::FASTGEMM_ISA {

struct BFloat16Pairs {
  using Element = BFloat16;
  using Unit = uint32_t;
  static constexpr int kGroup = 2;

  static FASTGEMM_INLINE Vector<Unit> along_k(const BFloat16* p) { return load<Vector<Unit>>(p); }
  static FASTGEMM_INLINE Vector<Unit> along_w(const BFloat16* p, int64_t sk) {
    const auto row = [](const BFloat16* from) {
      return __builtin_convertvector((load<Vector<uint16_t, kLanes<Unit>>>(from)), Vector<Unit>);
    };
    return row(p) | (row(p + sk) << 16);
  }
  static FASTGEMM_INLINE Unit one(const BFloat16* p, int64_t sk, int64_t valid) {
    return p[0].bits | (valid > 1 ? uint32_t{p[sk].bits} << 16 : 0u);
  }
};

// Flip: 0x80 moves the signed range of a byte up by 128, into the unsigned one.
template <uint8_t Flip>
struct Int8Quads {
  using Element = int8_t;
  using Unit = uint32_t;
  static constexpr int kGroup = 4;
  static constexpr uint32_t kFlip = Flip * 0x01010101u;

  static FASTGEMM_INLINE Vector<Unit> along_k(const int8_t* p) { return load<Vector<Unit>>(p) ^ kFlip; }
  static FASTGEMM_INLINE Vector<Unit> along_w(const int8_t* p, int64_t sk) {
#if defined(__AVX512BW__)
    // One row of k a 128-bit lane; then the same 4 columns of all rows in one lane; then a 4 x 4 byte
    // transpose inside each lane. Half the instructions of the portable form, worth 7 % at 512.
    __m512i rows = _mm512_castsi128_si512(load<__m128i>(p));
    rows = _mm512_inserti32x4(rows, load<__m128i>(p + sk), 1);
    rows = _mm512_inserti32x4(rows, load<__m128i>(p + 2 * sk), 2);
    rows = _mm512_inserti32x4(rows, load<__m128i>(p + 3 * sk), 3);
    const __m512i columns = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i bytes = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i gathered = _mm512_permutexvar_epi32(columns, rows);
    return (Vector<Unit>)_mm512_shuffle_epi8(gathered, _mm512_broadcast_i32x4(bytes)) ^ kFlip;
#else
    const auto row = [&](int i) {
      return __builtin_convertvector((load<Vector<uint8_t, kLanes<Unit>>>(p + i * sk)), Vector<Unit>);
    };
    return (row(0) | (row(1) << 8) | (row(2) << 16) | (row(3) << 24)) ^ kFlip;
#endif
  }
  static FASTGEMM_INLINE Unit one(const int8_t* p, int64_t sk, int64_t valid) {
    uint32_t word = 0;
    for (int i = 0; i < min<int64_t>(kGroup, valid); ++i)
      word |= uint32_t{static_cast<uint8_t>(p[i * sk])} << (8 * i);
    return word ^ kFlip;
  }
};

}  // namespace fastgemm::FASTGEMM_ISA
