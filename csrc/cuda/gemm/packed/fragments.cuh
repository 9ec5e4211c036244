// Codes of 4 and 8 bits become fragments of tensor cores in registers. Contract: decode_step<T, code>() takes
// the words that a thread reads from a unit (core/packed_weight.h) for a step of 16 columns, one word of
// 4-bit codes or two of 8-bit codes, and gives registers a[0..3] of the A operand of mma m16n8k16 or of
// wgmma:
//
//   a[0]: row r, a[1]: row r + 8, columns 2t and 2t + 1;     a[2], a[3]: the same rows, 8 columns further
//
// Numbers are exact in T; those of nf4 are rounded to T. Table lookups would take a shared read for each
// code. Bit operations convert two codes at once:
//   - integers: a code as the low bits of a mantissa whose exponent says that their unit is 1 is the number
//     2^7 + code (bfloat16, 0x4300) or 2^10 + code (fp16, 0x6400); one subtraction leaves the code;
//   - e2m1, e4m3: sign, exponent and mantissa move to their places in T, subnormal numbers too, and one
//     multiplication corrects the bias of the exponent;
//   - nf4: byte permutations select the low bytes of four numbers from 16 bytes in registers, then the high
//     bytes.
#pragma once

#include "core/packed_weight.h"
#include "cuda/device/pairs.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The words of codes in a step, and the number of steps in the 16 bytes that a thread reads at once.
template <Code code>
inline constexpr int kStepWords = bits_of(code) / 4;
template <Code code>
inline constexpr int kReadSteps = 4 / kStepWords<code>;

template <class T>
inline constexpr bool kIsBFloat16 = std::is_same_v<T, BFloat16>;

template <class T>
__device__ __forceinline__ void decode_int4(uint32_t (&a)[4], uint32_t word) {
  FASTGEMM_UNROLL
  for (int p = 0; p < 4; ++p) {
    if constexpr (kIsBFloat16<T>) {  // 128 + (value + 8)
      a[p] = subtract_pairs<T>(and_or(word >> 4 * p, 0x000f000fu, 0x43004300u), pair_of<T>(136));
    } else if (p % 2 == 0) {  // 1024 + (value + 8)
      a[p] = subtract_pairs<T>(and_or(word >> 4 * p, 0x000f000fu, 0x64006400u), pair_of<T>(1032));
    } else {  // 1024 + 16 * (value + 8), which saves a shift
      const uint32_t x = and_or(word >> 4 * (p - 1), 0x00f000f0u, 0x64006400u);
      a[p] = multiply_add_pairs<T>(x, pair_of<T>(0.0625f), pair_of<T>(-72));
    }
  }
}

// Byte p % 2 of a word is the even column's code, byte p % 2 + 2 the odd one's.
template <class T>
__device__ __forceinline__ void decode_int8(uint32_t (&a)[4], const uint32_t* words) {
  FASTGEMM_UNROLL
  for (int p = 0; p < 4; ++p) {
    const uint32_t word = words[p / 2];
    if constexpr (kIsBFloat16<T>) {  // the low 7 bits, and -128 for the sign
      const uint32_t x = word >> 8 * (p % 2);
      a[p] = subtract_pairs<T>(and_or(x, 0x007f007fu, 0x43004300u), and_or(x, 0x00800080u, 0x43004300u));
    } else {  // 1024 + (value + 128)
      const uint32_t x = __byte_perm(word ^ 0x80808080u, 0x64646464u, p % 2 ? 0x4341 : 0x4240);
      a[p] = subtract_pairs<T>(x, pair_of<T>(1152));
    }
  }
}

// Both halves of x hold a number in their upper bits: a sign, then BITS bits of exponent and mantissa. Moves
// these bits to the exponent and mantissa of T. The exponent still has the bias of the narrow format.
template <class T, int BITS, int MANTISSA>
__device__ __forceinline__ uint32_t spread_float(uint32_t x) {
  constexpr int kShift = (kIsBFloat16<T> ? 8 : 5) - (BITS - MANTISSA);  // T's exponent is longer by it
  constexpr uint32_t kBits = ((1u << BITS) - 1) << (15 - BITS) >> kShift;
  return (x & 0x80008000u) | (x >> kShift & kBits * 0x10001u);
}

// Places e2m1 codes as numbers of T that are too small by kE2m1Factor.
template <class T>
inline constexpr float kE2m1Factor = kIsBFloat16<T> ? 0x1p126f : 0x1p14f;
template <class T>
__device__ __forceinline__ void place_e2m1(uint32_t (&a)[4], uint32_t word) {
  FASTGEMM_UNROLL
  for (int p = 0; p < 4; ++p) a[p] = spread_float<T, 3, 1>(word << 4 * (3 - p));
}
template <class T>
__device__ __forceinline__ void decode_e2m1(uint32_t (&a)[4], uint32_t word) {
  place_e2m1<T>(a, word);
  FASTGEMM_UNROLL
  for (int p = 0; p < 4; ++p) a[p] = multiply_pairs<T>(a[p], pair_of<T>(kE2m1Factor<T>));
}

template <class T>
__device__ __forceinline__ void decode_e4m3(uint32_t (&a)[4], const uint32_t* words) {
  FASTGEMM_UNROLL
  for (int p = 0; p < 4; ++p)
    a[p] = multiply_pairs<T>(spread_float<T, 7, 3>(words[p / 2] << 8 * (1 - p % 2)),
                             pair_of<T>(kIsBFloat16<T> ? 0x1p120f : 0x1p8f));
}

// One byte of each of the four numbers of nf4 from `first` on, which are rounded to T. `byte` 0 is the low
// byte, 1 the high one.
template <class T>
__device__ __forceinline__ constexpr uint32_t normal_float_bytes(int byte, int first) {
  constexpr uint16_t kBFloat16[16] = {0xbf80, 0xbf32, 0xbf06, 0xbeca, 0xbe92, 0xbe3d, 0xbdba, 0x0000,
                                      0x3da3, 0x3e25, 0x3e7c, 0x3ead, 0x3ee2, 0x3f10, 0x3f39, 0x3f80};
  constexpr uint16_t kHalf[16] = {0xbc00, 0xb992, 0xb833, 0xb652, 0xb48d, 0xb1ea, 0xadd4, 0x0000,
                                  0x2d18, 0x3126, 0x33e0, 0x3568, 0x370d, 0x3880, 0x39c9, 0x3c00};
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t number = kIsBFloat16<T> ? kBFloat16[first + i] : kHalf[first + i];
    bytes |= (number >> 8 * byte & 255u) << 8 * i;
  }
  return bytes;
}

template <class T>
__device__ __forceinline__ void decode_nf4(uint32_t (&a)[4], uint32_t word) {
  constexpr uint32_t kTable[2][4] = {{normal_float_bytes<T>(0, 0), normal_float_bytes<T>(0, 4),
                                      normal_float_bytes<T>(0, 8), normal_float_bytes<T>(0, 12)},
                                     {normal_float_bytes<T>(1, 0), normal_float_bytes<T>(1, 4),
                                      normal_float_bytes<T>(1, 8), normal_float_bytes<T>(1, 12)}};
  // The codes of a[0], a[1]: even, even, odd, odd; then those of a[2], a[3]. Bit 3 of a selector would
  // replicate signs, so it selects between the two halves of the table afterwards.
  const uint32_t codes = __byte_perm(word, 0, 0x3120);
  const uint32_t index = codes & 0x77777777u, half = (codes >> 1 & 0x44444444u) | 0x32103210u;
  FASTGEMM_UNROLL
  for (int i = 0; i < 2; ++i) {
    uint32_t bytes[2];
    FASTGEMM_UNROLL
    for (int b = 0; b < 2; ++b)
      bytes[b] = __byte_perm(__byte_perm(kTable[b][0], kTable[b][1], index >> 16 * i),
                             __byte_perm(kTable[b][2], kTable[b][3], index >> 16 * i), half >> 16 * i);
    a[2 * i] = __byte_perm(bytes[0], bytes[1], 0x6240);
    a[2 * i + 1] = __byte_perm(bytes[0], bytes[1], 0x7351);
  }
}

// Decodes nf4 by a table in shared memory, whose entry has the two numbers of a byte of codes. Each lane has
// a copy of its own, so that lanes read different banks. It takes half of the instructions.
struct NormalFloatTable {
  static constexpr int kBytes = 256 * 128;

  // 512 threads; a barrier must follow.
  template <class T>
  __device__ __forceinline__ static void fill(unsigned char* table) {
    const unsigned byte = threadIdx.x / 2;
    const uint32_t pair = round_pair<T>(packed::normal_float(byte & 15), packed::normal_float(byte >> 4));
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i)
      store_vector(table + threadIdx.x * 64 + i * 16, Unit{{pair, pair, pair, pair}});
  }
  __device__ __forceinline__ static void decode(uint32_t (&a)[4], uint32_t word, const unsigned char* table) {
    const uint32_t lane = threadIdx.x % 32 * 4;
    uint32_t pairs[4];  // the even columns' numbers of a[0] and a[1], of a[2] and a[3], and the odd ones
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i)
      pairs[i] =
          load_vector<uint32_t>(table + and_or(i == 0 ? word << 7 : word >> (8 * i - 7), 255 << 7, lane));
    FASTGEMM_UNROLL
    for (int i = 0; i < 2; ++i)
      a[2 * i] = __byte_perm(pairs[i], pairs[i + 2], 0x5410),
            a[2 * i + 1] = __byte_perm(pairs[i], pairs[i + 2], 0x7632);
  }
};

template <class T, Code code>
__device__ __forceinline__ void decode_step(uint32_t (&a)[4], const uint32_t* words) {
  if constexpr (code == Code::int4)
    decode_int4<T>(a, *words);
  else if constexpr (code == Code::int8)
    decode_int8<T>(a, words);
  else if constexpr (code == Code::nf4)
    decode_nf4<T>(a, *words);
  else if constexpr (code == Code::e2m1)
    decode_e2m1<T>(a, *words);
  else
    decode_e4m3<T>(a, words);
}

// Subtracts the zeros of integer codes from a step's fragment: zero[0] is a pair of the zero of row r,
// zero[1] of row r + 8. Differences are within -255 to 255, and so exact in both types.
template <class T>
__device__ __forceinline__ void subtract_zeros(uint32_t (&a)[4], const uint32_t (&zero)[2]) {
  FASTGEMM_UNROLL
  for (int p = 0; p < 4; ++p) a[p] = subtract_pairs<T>(a[p], zero[p % 2]);
}

}  // namespace fastgemm::FASTGEMM_TARGET
