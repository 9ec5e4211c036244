// Scales and zeros of a unit (core/packed_weight.h) as a thread of wgmma needs them. Contract: a thread owns
// rows r and r + 8 of the unit; UnitScales::scales() and zeros() read both values of a group of columns at
// once, and of_rows() those of a scale that serves whole rows.
#pragma once

#include "core/packed_weight.h"
#include "cuda/device/pairs.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Of row r and of row r + 8.
struct RowPair {
  float first, second;
};

// How the bits of a scale become a float32, without a branch: packed::scale_at() is the definition. Sign and
// magnitude move to their places; a factor corrects the bias of the exponent, and so subnormal numbers, too.
struct ScaleBits {
  int log_bytes;
  uint32_t magnitude, sign;  // masks
  int shift, sign_shift;
  float factor;
  uint32_t special, special_bits;  // from this magnitude on: infinite or NaN, by these bits
  uint32_t least;                  // the bits of the smallest number

  ScaleBits() = default;
  __host__ __device__ explicit ScaleBits(ScaleType type) {
    constexpr uint32_t kNone = 0xffffffffu, kInfinite = 0x7f800000, kNaN = 0x7fc00000;
    switch (type) {
      case ScaleType::bf16:
        *this = {1, 0x7fff, 0x8000, 16, 16, 1.0f, kNone, 0, 0};
        break;
      case ScaleType::f16:
        *this = {1, 0x7fff, 0x8000, 13, 16, 0x1p112f, 0x7c00, kInfinite, 0};
        break;
      case ScaleType::e8m0:
        *this = {0, 0xff, 0, 23, 0, 1.0f, 0xff, kNaN, 1u << 22};  // 0 is 2^-127
        break;
      case ScaleType::e4m3:
        *this = {0, 0x7f, 0x80, 20, 24, 0x1p120f, 0x7f, kNaN, 0};
        break;
      default:
        *this = {2, 0x7fffffff, 0x80000000u, 0, 0, 1.0f, kNone, 0, 0};
    }
  }

 private:
  __host__ __device__ constexpr ScaleBits(int log_bytes, uint32_t magnitude, uint32_t sign, int shift,
                                          int sign_shift, float factor, uint32_t special,
                                          uint32_t special_bits, uint32_t least)
      : log_bytes(log_bytes),
        magnitude(magnitude),
        sign(sign),
        shift(shift),
        sign_shift(sign_shift),
        factor(factor),
        special(special),
        special_bits(special_bits),
        least(least) {}
};

// Element i of an array of scales in a unit, which begins at a multiple of 4 bytes.
__device__ __forceinline__ float read_scale(const ScaleBits& f, const unsigned char* scales, int i) {
  const int byte = i << f.log_bytes;
  const uint32_t x = load_vector<uint32_t>(scales + (byte & ~3)) >> (byte & 3) * 8, m = x & f.magnitude;
  const uint32_t bits = max(m << f.shift, f.least) | (x & f.sign) << f.sign_shift;
  return m >= f.special ? __uint_as_float(bits | f.special_bits) : __uint_as_float(bits) * f.factor;
}
__device__ __forceinline__ RowPair read_scales(const ScaleBits& f, const unsigned char* scales, int i,
                                               int j) {
  return {read_scale(f, scales, i), read_scale(f, scales, j)};
}

// The same with a branch, for kernels in which the masks above would take too many registers.
__device__ __forceinline__ float read_scale(ScaleType type, const unsigned char* scales, int i) {
  switch (type) {
    case ScaleType::f32:
      return load_vector<float>(scales + 4 * i);
    case ScaleType::bf16:
      return widen(BFloat16{load_vector<uint16_t>(scales + 2 * i)});
    case ScaleType::f16:
      return widen(Half{load_vector<uint16_t>(scales + 2 * i)});
    case ScaleType::e8m0: {
      const uint32_t e = scales[i];
      return __uint_as_float(e == 255 ? 0x7fc00000u : e == 0 ? 1u << 22 : e << 23);
    }
    default: {  // the exponent and mantissa of fp16, whose bias is larger by 8
      const uint32_t x = scales[i];
      const float value = widen(Half{uint16_t((x & 128) << 8 | (x & 127) << 7)}) * 256.0f;
      return (x & 127) == 127 ? __uint_as_float(0x7fc00000u) : value;
    }
  }
}

// Two scales in the low bytes, as numbers of T.
template <class T>
__device__ __forceinline__ uint32_t pair_of_e4m3(uint32_t bytes) {
#if defined(__CUDACC__) && FASTGEMM_SM90A
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(uint16_t(bytes)));
#else
  const auto of = [](uint32_t x) { return packed::decode(Code::e4m3, x); };
  const uint32_t halves = round_pair<Half>(of(bytes & 255), of(bytes >> 8));
#endif
  if constexpr (std::is_same_v<T, Half>) return halves;
  return round_pair<T>(low_of<Half>(halves), high_of<Half>(halves));
}
// The same in bfloat16. A byte is the exponent; 0 (2^-127, subnormal) and 255 (NaN) also set the highest bit
// of the mantissa.
__device__ __forceinline__ uint32_t pair_of_e8m0(uint32_t bytes) {
  const uint32_t pair = __byte_perm(bytes, 0, 0x4140);
  const uint32_t is_0 = ~(pair + 0x00ff00ffu), is_255 = pair + 0x00010001u;
  return pair << 7 | ((is_0 | is_255) & 0x01000100u) >> 2;
}
// One of two numbers of 16 bits, twice.
__device__ __forceinline__ uint32_t first_twice(uint32_t pair) { return __byte_perm(pair, 0, 0x1010); }
__device__ __forceinline__ uint32_t second_twice(uint32_t pair) { return __byte_perm(pair, 0, 0x3232); }

// Where scales and zeros lie in a unit. Made on the host.
struct UnitScales {
  ScaleType type;
  ScaleBits format;
  bool by_rows;          // none are in the unit
  bool shared;           // one scale for all rows of the unit
  int at, zeros_at;      // byte offsets in the unit
  int steps, log_steps;  // k16 steps in a group; 8 and 3 if the group is a unit or more

  UnitScales() = default;
  UnitScales(const PackedWeight& w, int64_t k)
      : type(w.scale),
        format(w.scale),
        by_rows(w.by_rows(k)),
        shared(w.group_n != 1),
        at(packed::unit_code_bytes(w)),
        zeros_at(at + packed::unit_scale_bytes(w, k)),
        steps(by_rows || w.group_k >= packed::kColumns ? 8 : int(w.group_k) / 16),
        log_steps(steps == 8   ? 3
                  : steps == 4 ? 2
                  : steps == 2 ? 1
                               : 0) {}

  // The index of the scale of row r for the group of k16 step `step`, and how far that of row r + 8 is.
  __device__ __forceinline__ int index(int thread, int step) const {
    return shared ? step >> log_steps : index_of_row(thread, step >> log_steps);
  }
  __device__ __forceinline__ static int index_of_row(int thread, int group) {
    return group * packed::kRows + thread / 32 * 16 + thread % 32 / 4 * 2;
  }
  __device__ __forceinline__ int apart() const { return shared ? 0 : 1; }

  // Of the group of k16 step `step`, in this thread's rows.
  __device__ __forceinline__ RowPair scales(const unsigned char* unit, int thread, int step) const {
    const int i = index(thread, step);
    return read_scales(format, unit + at, i, i + apart());
  }
  __device__ __forceinline__ RowPair added_zeros(const unsigned char* unit, int thread, int step) const {
    const int i = index(thread, step);
    return read_scales(format, unit + zeros_at, i, i + apart());
  }
  // Zeros that are subtracted, of a group, as numbers of T.
  template <class T>
  __device__ __forceinline__ uint32_t zero_pair(const unsigned char* unit, int thread, int group) const {
    const auto* const zeros = reinterpret_cast<const int8_t*>(unit + zeros_at);
    const int i = shared ? group : index_of_row(thread, group);
    return round_pair<T>(float(zeros[i]), float(zeros[i + apart()]));
  }
  // Scales or added zeros of a group, which begin at `scales`, as numbers of T, if paired<T>(code).
  template <class T, Code code>
  __device__ __forceinline__ uint32_t pair(const unsigned char* scales, int thread, int group) const {
    const int i = index_of_row(thread, group);
    if constexpr (code != Code::e2m1) return load_vector<uint32_t>(scales + 2 * i);
    const uint32_t bytes = load_vector<uint16_t>(scales + i);
    if (std::is_same_v<T, Half> || type == ScaleType::e4m3) return pair_of_e4m3<T>(bytes);
    return pair_of_e8m0(bytes);
  }
  // Whether pair() knows the type of the scales. Other types are not exact in T, or are rare.
  template <class T>
  bool paired(Code code) const {
    if (by_rows || shared) return false;
    const bool bf16 = std::is_same_v<T, BFloat16>;
    if (code == Code::e2m1 && type == ScaleType::e4m3) return steps == 1;
    if (code == Code::e2m1) return bf16 && type == ScaleType::e8m0 && steps == 2;
    return type == (bf16 ? ScaleType::bf16 : ScaleType::f16);
  }
};

// The zeros of whole rows: int8 if they are subtracted, else float32.
__device__ __forceinline__ float row_zero(const PackedWeight& w, int row) {
  if (w.zero == Zero::none) return 0;
  return w.zero == Zero::subtracted ? float(static_cast<const int8_t*>(w.zeros)[row])
                                    : static_cast<const float*>(w.zeros)[row];
}

}  // namespace fastgemm::FASTGEMM_TARGET
