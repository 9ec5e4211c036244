// Registers of 16-byte lanes, and the transpose of a tile in them. Compiled once per instruction set;
// everything is inlined into namespace fastgemm::FASTGEMM_ISA, so that code built for one processor is never
// linked into code for another.
//
// Lane l of a register with L lanes holds 16 bytes of row l * n + k (n = 16 / element size). For k = 0 ... n
// - 1 these are n registers, with L * n rows and n columns. The loads collect the lanes. An n x n
// transposition inside every lane remains, log2(n) rounds of interleaving, for which no instruction set needs
// cross-lane shuffles. Then register c holds column c of all L * n rows: a whole line of dst with AVX-512.
// All element sizes and widths use this one network.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/transpose/block.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define FASTGEMM_INLINE inline __attribute__((always_inline))

namespace fastgemm::FASTGEMM_ISA {

// One lane, in GCC vector extensions, so that the compiler uses the interleave instruction of any processor
// (punpckl, zip1).
struct Vector16 {
  using Type = uint8_t __attribute__((vector_size(16)));
  using U16 = uint16_t __attribute__((vector_size(16)));
  using U32 = uint32_t __attribute__((vector_size(16)));
  using U64 = uint64_t __attribute__((vector_size(16)));
  static constexpr int kBytes = 16;

  static FASTGEMM_INLINE Type load(const char* p) {
    Type v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static FASTGEMM_INLINE Type load_lanes(const char* p, int64_t) { return load(p); }
  static FASTGEMM_INLINE void store(char* p, Type v) { std::memcpy(p, &v, sizeof v); }
  static FASTGEMM_INLINE void stream(char* p, Type v) {
#if defined(__SSE2__)
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), reinterpret_cast<__m128i>(v));
#else
    store(p, v);  // the language has no non-temporal store; other processors detect writes of whole lines
#endif
  }
  template <int Size>
  static FASTGEMM_INLINE Type low(Type a, Type b) {
    if constexpr (Size == 1)
      return __builtin_shuffle(a, b, Type{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
    else if constexpr (Size == 2)
      return (Type)__builtin_shuffle((U16)a, (U16)b, U16{0, 8, 1, 9, 2, 10, 3, 11});
    else if constexpr (Size == 4)
      return (Type)__builtin_shuffle((U32)a, (U32)b, U32{0, 4, 1, 5});
    else
      return (Type)__builtin_shuffle((U64)a, (U64)b, U64{0, 2});
  }
  template <int Size>
  static FASTGEMM_INLINE Type high(Type a, Type b) {
    if constexpr (Size == 1)
      return __builtin_shuffle(a, b, Type{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
    else if constexpr (Size == 2)
      return (Type)__builtin_shuffle((U16)a, (U16)b, U16{4, 12, 5, 13, 6, 14, 7, 15});
    else if constexpr (Size == 4)
      return (Type)__builtin_shuffle((U32)a, (U32)b, U32{2, 6, 3, 7});
    else
      return (Type)__builtin_shuffle((U64)a, (U64)b, U64{1, 3});
  }
};

#if defined(__AVX2__)
struct Vector32 {
  using Type = __m256i;
  static constexpr int kBytes = 32;

  static FASTGEMM_INLINE Type load(const char* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static FASTGEMM_INLINE __m128i lane(const char* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static FASTGEMM_INLINE Type load_lanes(const char* p, int64_t distance) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(lane(p)), lane(p + distance), 1);
  }
  static FASTGEMM_INLINE void store(char* p, Type v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
  static FASTGEMM_INLINE void stream(char* p, Type v) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), v);
  }
  template <int Size>
  static FASTGEMM_INLINE Type low(Type a, Type b) {
    if constexpr (Size == 1) return _mm256_unpacklo_epi8(a, b);
    if constexpr (Size == 2) return _mm256_unpacklo_epi16(a, b);
    if constexpr (Size == 4) return _mm256_unpacklo_epi32(a, b);
    return _mm256_unpacklo_epi64(a, b);
  }
  template <int Size>
  static FASTGEMM_INLINE Type high(Type a, Type b) {
    if constexpr (Size == 1) return _mm256_unpackhi_epi8(a, b);
    if constexpr (Size == 2) return _mm256_unpackhi_epi16(a, b);
    if constexpr (Size == 4) return _mm256_unpackhi_epi32(a, b);
    return _mm256_unpackhi_epi64(a, b);
  }
};
#endif

#if defined(__AVX512BW__)
// The maskz forms with a full mask are the same instructions as the plain intrinsics, without GCC 12's false
// warnings about their undefined operand.
struct Vector64 {
  using Type = __m512i;
  static constexpr int kBytes = 64;

  static FASTGEMM_INLINE Type load(const char* p) { return _mm512_loadu_si512(p); }
  static FASTGEMM_INLINE __m128i lane(const char* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static FASTGEMM_INLINE Type load_lanes(const char* p, int64_t distance) {
    Type v = _mm512_castsi128_si512(lane(p));
    v = _mm512_inserti32x4(v, lane(p + distance), 1);
    v = _mm512_inserti32x4(v, lane(p + 2 * distance), 2);
    return _mm512_inserti32x4(v, lane(p + 3 * distance), 3);
  }
  static FASTGEMM_INLINE void store(char* p, Type v) { _mm512_storeu_si512(p, v); }
  static FASTGEMM_INLINE void stream(char* p, Type v) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), v);
  }
  template <int Size>
  static FASTGEMM_INLINE Type low(Type a, Type b) {
    if constexpr (Size == 1) return _mm512_unpacklo_epi8(a, b);
    if constexpr (Size == 2) return _mm512_unpacklo_epi16(a, b);
    if constexpr (Size == 4) return _mm512_maskz_unpacklo_epi32(0xffff, a, b);
    return _mm512_maskz_unpacklo_epi64(0xff, a, b);
  }
  template <int Size>
  static FASTGEMM_INLINE Type high(Type a, Type b) {
    if constexpr (Size == 1) return _mm512_unpackhi_epi8(a, b);
    if constexpr (Size == 2) return _mm512_unpackhi_epi16(a, b);
    if constexpr (Size == 4) return _mm512_maskz_unpackhi_epi32(0xffff, a, b);
    return _mm512_maskz_unpackhi_epi64(0xff, a, b);
  }
};
using Widest = Vector64;
#elif defined(__AVX2__)
using Widest = Vector32;
#else
using Widest = Vector16;
#endif

// kBytes / Size rows of 16 bytes each -> 16 / Size rows of kBytes each.
template <class V, int Size>
FASTGEMM_INLINE void transpose_registers(const char* src, int64_t src_stride, char* dst, int64_t dst_stride) {
  constexpr int n = 16 / Size;
  typename V::Type v[n], w[n];
#pragma GCC unroll 16
  for (int k = 0; k < n; ++k) v[k] = V::load_lanes(src + k * src_stride, n * src_stride);
#pragma GCC unroll 4
  for (int round = 1; round < n; round *= 2) {
#pragma GCC unroll 8
    for (int k = 0; k < n / 2; ++k) {
      w[2 * k] = V::template low<Size>(v[k], v[k + n / 2]);
      w[2 * k + 1] = V::template high<Size>(v[k], v[k + n / 2]);
    }
#pragma GCC unroll 16
    for (int k = 0; k < n; ++k) v[k] = w[k];
  }
#pragma GCC unroll 16
  for (int k = 0; k < n; ++k) V::store(dst + k * dst_stride, v[k]);
}

template <int Size>
FASTGEMM_INLINE void transpose_elements(const char* src, int64_t src_stride, char* dst, int64_t dst_stride,
                                        int64_t rows, int64_t cols) {
  using T = Element<Size>;
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t i = 0; i < rows; ++i)
      reinterpret_cast<T*>(dst + j * dst_stride)[i] = reinterpret_cast<const T*>(src + i * src_stride)[j];
}

// Transposes one band of kBytes / Size rows. The last block is moved back, so that it ends with the band. It
// writes some elements a second time, which costs less than narrower code.
template <class V, int Size>
FASTGEMM_INLINE void transpose_band(const char* src, int64_t src_stride, char* dst, int64_t dst_stride,
                                    int64_t cols) {
  constexpr int64_t kCols = 16 / Size;
  for (int64_t j = 0; j < cols; j += kCols) {
    if (j > cols - kCols) j = cols - kCols;
    transpose_registers<V, Size>(src + j * Size, src_stride, dst + j * dst_stride, dst_stride);
  }
}

// Transposes any number of rows and columns: first in bands of the widest register, then in bands of one
// lane. The last band may overlap the band before it, so that it is complete. Single elements are moved only
// if a side is shorter than one lane.
template <int Size>
FASTGEMM_INLINE void transpose_tile(const char* src, int64_t src_stride, char* dst, int64_t dst_stride,
                                    int64_t rows, int64_t cols) {
  constexpr int64_t kWide = Widest::kBytes / Size, kLane = 16 / Size;
  if (rows < kLane || cols < kLane)
    return transpose_elements<Size>(src, src_stride, dst, dst_stride, rows, cols);
  int64_t i = 0;
  for (; i + kWide <= rows; i += kWide)
    transpose_band<Widest, Size>(src + i * src_stride, src_stride, dst + i * Size, dst_stride, cols);
  for (; i < rows; i += kLane) {
    if (i > rows - kLane) i = rows - kLane;
    transpose_band<Vector16, Size>(src + i * src_stride, src_stride, dst + i * Size, dst_stride, cols);
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
