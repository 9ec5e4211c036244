// Packed weights as numbers, with vectors.
//
// Codes of 4 bits are looked up. The 16 weights of a group are computed and rounded once; a table of 16
// floats fits in a register of AVX-512 and in two of AVX2, and one of 16-bit numbers in half a register. So a
// format of 4 bits takes no arithmetic of its own: int4, nf4 and e2m1 differ only in their tables. Codes of 8
// bits are converted, and each is multiplied by its scale.
//
// This file is compiled without fused multiply-adds (-ffp-contract=off): all instruction sets compute the
// same bits as packed::weight_of().
#include "cpu/gemm/levels.h"
#include "cpu/gemm/weight_vectors.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

using namespace weights;

// The 16 weights of a group of 4-bit codes, as a table.
template <class T>
struct Weights16 {
  alignas(64) T of[16];

  FASTGEMM_INLINE Weights16(const float* numbers, const Group& group) {
    for (int i = 0; i < 16; i += N) store_narrowed<T, float>(of + i, group.weight_of(load<V>(numbers + i)));
  }
};

#if defined(__AVX2__)
// vpermps has tables of eight floats; the highest bit of a code chooses between two of them.
FASTGEMM_INLINE __m256 look_up8(__m256 low, __m256 high, __m256i codes) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes),
                          _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
}
// Looks up the 16 codes in 8 bytes.
FASTGEMM_INLINE void look_up16(const Weights16<float>& table, const uint8_t* codes, float* to) {
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m256 low = load<__m256>(table.of), high = load<__m256>(table.of + 8);
  const __m256 even = look_up8(low, high, bytes), odd = look_up8(low, high, _mm256_srli_epi32(bytes, 4));
  store(to, __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11));
  store(to + 8, __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15));
}
// pshufb looks up the lower and the upper bytes of 16-bit weights.
template <class T>
FASTGEMM_INLINE void look_up16(const Weights16<T>& table, const uint8_t* codes, T* to) {
  static_assert(sizeof(T) == 2);
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)), mask = _mm_set1_epi8(15);
  const __m128i index =
      _mm_unpacklo_epi8(_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
  const __m128i first = load<__m128i>(table.of), second = load<__m128i>(table.of + 8);
  const __m128i low_byte = _mm_set1_epi16(255);
  const __m128i low = _mm_packus_epi16(_mm_and_si128(first, low_byte), _mm_and_si128(second, low_byte));
  const __m128i high = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8));
  const __m128i x = _mm_shuffle_epi8(low, index), y = _mm_shuffle_epi8(high, index);
  store(to, _mm_unpacklo_epi8(x, y));
  store(to + 8, _mm_unpackhi_epi8(x, y));
}
#endif
#if defined(__AVX512BW__)
// Looks up the 32 codes in 16 bytes. vpermps reads the low four bits of each index.
FASTGEMM_INLINE void look_up32(const Weights16<float>& table, const uint8_t* codes, float* to) {
  const __m512i bytes = _mm512_maskz_cvtepu8_epi32(0xffff, load<__m128i>(codes));
  const __m512 weights = load<__m512>(table.of);
  const V even = _mm512_maskz_permutexvar_ps(0xffff, bytes, weights);
  const V odd = _mm512_maskz_permutexvar_ps(0xffff, _mm512_maskz_srli_epi32(0xffff, bytes, 4), weights);
  store(to, __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  store(to + 16,
        __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}
// Each lane gets the 16 bits that have its code, shifted down. vpermw reads the low five bits of an index,
// one of which belongs to the next code; so both halves of the register hold the table.
template <class T>
FASTGEMM_INLINE void look_up32(const Weights16<T>& table, const uint8_t* codes, T* to) {
  static_assert(sizeof(T) == 2);
  using Words = Vector<uint16_t>;
  const Words words = (Words)_mm512_broadcast_i32x4(load<__m128i>(codes));
  const Words spread = __builtin_shufflevector(words, words, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                               4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  constexpr Words kShift = {0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12,
                            0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12};
  const __m512i index = _mm512_maskz_srlv_epi16(~0u, (__m512i)spread, (__m512i)kShift);
  const __m512i weights = _mm512_broadcast_i64x4(load<__m256i>(table.of));
  store(to, _mm512_maskz_permutexvar_epi16(~0u, index, weights));
}
#endif

// Converts columns [k, end) of a row. `codes` points to the whole row. Only bytes with codes of these columns
// are read.
template <class T>
FASTGEMM_INLINE void convert4(const uint8_t* codes, const float* numbers, const Group& group, int64_t k,
                              int64_t end, T* to) {
  const Weights16<T> table(numbers, group);
  const auto one = [&](int64_t i) { return table.of[codes[i / 2] >> (i % 2 * 4) & 15]; };
  if (k % 2 && k < end) *to++ = one(k++);
#if defined(__AVX512BW__)
  for (; k + 32 <= end; k += 32, to += 32) look_up32(table, codes + k / 2, to);
#endif
#if defined(__AVX2__)
  for (; k + 16 <= end; k += 16, to += 16) look_up16(table, codes + k / 2, to);
#endif
  for (; k < end; ++k) *to++ = one(k);
}

template <bool kFloating, class T>
FASTGEMM_INLINE void convert8(const uint8_t* codes, const Group& group, int64_t k, int64_t end, T* to) {
#if defined(__AVX512BW__)
  if constexpr (kFloating && std::is_same_v<T, BFloat16>)
    for (; group.is_one() && k + 32 <= end; k += 32, to += 32) store(to, e4m3_to_bf16(codes + k));
#endif
  for (; k + N <= end; k += N, to += N)
    store_narrowed<T, float>(to, group.weight_of(load_codes<kFloating>(codes + k)));
  if (k == end) return;
  uint8_t rest[N] = {};
  T weights[N];
  for (int64_t i = k; i < end; ++i) rest[i - k] = codes[i];
  store_narrowed<T, float>(weights, group.weight_of(load_codes<kFloating>(rest)));
  for (int64_t i = k; i < end; ++i) *to++ = weights[i - k];
}

template <class T, Code code>
void convert_rows(const PackedBlock& b) {
  constexpr bool four = bits_of(code) == 4;
  constexpr int64_t kMost = 64;  // groups whose scales are read at once
  const PackedWeight& w = *b.weight;
  const int64_t group_k = min(w.group_k, b.k_size), groups = ceil_div(b.k_size, group_k);
  const int64_t pitch = four ? ceil_div(b.k_size, 2) : b.k_size, end = b.first_k + b.depth;
  const float* numbers = four ? numbers_of(w.code) : nullptr;
  const int64_t first_group = b.first_k / group_k, end_group = ceil_div(end, group_k);
  float scales[kMost], zeros[kMost];
  for (int64_t row = 0; row < b.rows; ++row) {
    const int64_t n = b.first_n + row, of_row = (w.group_n == 1 ? n : n / w.group_n) * groups;
    const uint8_t* codes = static_cast<const uint8_t*>(b.codes) + n * pitch;
    T* to = static_cast<T*>(b.to) + row * b.ld;
    // The engines convert a short piece of many rows, and then the next piece of the same rows.
    for (int64_t i = 0; i < min<int64_t>(b.depth, 1024) * bits_of(code) / 8; i += 64)
      __builtin_prefetch(codes + end * bits_of(code) / 8 + i, 0, 2);
    int64_t k = b.first_k;
    for (int64_t group = first_group; group < end_group; group += kMost) {
      const int64_t count = min(kMost, end_group - group);
      read_numbers(w.scale, w.scales, of_row + group, count, scales);
      if (w.zero != Zero::none) read_zeros(w, of_row + group, count, zeros);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t next = min(end, (group + i + 1) * group_k);
        const Group g{w.zero, scales[i], w.zero == Zero::none ? 0.0f : zeros[i], w.global};
        if constexpr (four)
          convert4(codes, numbers, g, k, next, to);
        else
          convert8<code == Code::e4m3>(codes, g, k, next, to);
        to += next - k;
        k = next;
      }
    }
  }
}

template <class T>
void convert_block(const PackedBlock& b) {
  switch (b.weight->code) {
    case Code::int8:
      return convert_rows<T, Code::int8>(b);
    case Code::e4m3:
      return convert_rows<T, Code::e4m3>(b);
    case Code::none:
      return;
    default:
      return convert_rows<T, Code::int4>(b);
  }
}

}  // namespace

void dequantize_block(const PackedBlock& b) {
  switch (b.type) {
    case DType::bf16:
      return convert_block<BFloat16>(b);
    case DType::f16:
      return convert_block<Half>(b);
    default:
      return convert_block<float>(b);
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
