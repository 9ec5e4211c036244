// Packs bf16 and int8 elements into the 4-byte units of the dot-product instructions. A unit holds 2 or 4
// consecutive k of one row of A or one column of B, which a lane multiplies and adds in one step.
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
      return load_extended<Unit>(reinterpret_cast<const uint16_t*>(from));
    };
    return row(p) | (row(p + sk) << 16);
  }
  static FASTGEMM_INLINE Unit one(const BFloat16* p, int64_t sk, int64_t valid) {
    return p[0].bits | (valid > 1 ? uint32_t{p[sk].bits} << 16 : 0u);
  }
};

// Transposes each 16 bytes, read as a 4 x 4 matrix.
template <class V, int... I>
FASTGEMM_INLINE V transpose_bytes(V x, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, x, (I / 16 * 16 + I % 4 * 4 + I / 4 % 4)...);
}

// With Flip = 0x80, adds 128 to each byte: signed bytes become unsigned ones.
template <uint8_t Flip>
struct Int8Quads {
  using Element = int8_t;
  using Unit = uint32_t;
  static constexpr int kGroup = 4;
  static constexpr uint32_t kFlip = Flip * 0x01010101u;

  static FASTGEMM_INLINE Vector<Unit> along_k(const int8_t* p) { return load<Vector<Unit>>(p) ^ kFlip; }
  static FASTGEMM_INLINE Vector<Unit> along_w(const int8_t* p, int64_t sk) {
#if defined(__AVX512BW__)
    // Loads one row of k into each 128-bit lane, then collects the same 4 columns of all rows in one lane,
    // then transposes 4 x 4 bytes in each lane. This takes half the instructions of the portable form, and
    // gains 7 % at size 512.
    using Row = Vector<Unit, 4>;
    const auto two_rows = [&](const int8_t* from) {
      return __builtin_shufflevector(load<Row>(from), load<Row>(from + sk), 0, 1, 2, 3, 4, 5, 6, 7);
    };
    const auto gathered = __builtin_shufflevector(two_rows(p), two_rows(p + 2 * sk), 0, 4, 8, 12, 1, 5, 9, 13,
                                                  2, 6, 10, 14, 3, 7, 11, 15);
    const auto bytes = (Vector<uint8_t>)gathered;
    return (Vector<Unit>)transpose_bytes(bytes, std::make_integer_sequence<int, 64>{}) ^ kFlip;
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
