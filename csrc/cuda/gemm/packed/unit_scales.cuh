// Scales and zeros of a unit (core/packed_weight.h) as a thread of the tensor cores needs them. Contract: a
// thread owns rows r and r + 8 of the unit, and UnitScales reads both values of a group of columns at once.
#pragma once

#include "core/packed_weight.h"
#include "cuda/device/pairs.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A number of row r and one of row r + 8.
struct RowPair {
  float first, second;
};

// Element i of an array of scales.
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
// Elements i and j; one branch on the type serves both.
__device__ __forceinline__ RowPair read_scales(ScaleType type, const unsigned char* scales, int i, int j) {
  switch (type) {
    case ScaleType::f32:
      return {read_scale(ScaleType::f32, scales, i), read_scale(ScaleType::f32, scales, j)};
    case ScaleType::bf16:
      return {read_scale(ScaleType::bf16, scales, i), read_scale(ScaleType::bf16, scales, j)};
    case ScaleType::f16:
      return {read_scale(ScaleType::f16, scales, i), read_scale(ScaleType::f16, scales, j)};
    case ScaleType::e8m0:
      return {read_scale(ScaleType::e8m0, scales, i), read_scale(ScaleType::e8m0, scales, j)};
    default:
      return {read_scale(ScaleType::e4m3, scales, i), read_scale(ScaleType::e4m3, scales, j)};
  }
}

// Two scales of e8m0 in the low bytes, as numbers of bfloat16. A byte is the exponent; 0 (2^-127, subnormal)
// and 255 (NaN) also set the highest bit of the mantissa.
__device__ __forceinline__ uint32_t pair_of_e8m0(uint32_t bytes) {
  const uint32_t pair = __byte_perm(bytes, 0, 0x4140);
  const uint32_t is_0 = ~(pair + 0x00ff00ffu), is_255 = pair + 0x00010001u;
  return pair << 7 | ((is_0 | is_255) & 0x01000100u) >> 2;
}
// One number of a pair, twice. An operand of an instruction on pairs could select the half itself, but such
// instructions take longer.
__device__ __forceinline__ uint32_t first_twice(uint32_t pair) { return __byte_perm(pair, 0, 0x1010); }
__device__ __forceinline__ uint32_t second_twice(uint32_t pair) { return __byte_perm(pair, 0, 0x3232); }

// Where scales and zeros lie in a unit. Made on the host.
struct UnitScales {
  ScaleType type;
  bool by_rows;          // none are in the unit
  bool shared;           // one scale for all rows of the unit
  int at, zeros_at;      // byte offsets in the unit
  int steps, log_steps;  // k16 steps in a group; 8 and 3 if the group is a unit or more

  UnitScales() = default;
  UnitScales(const PackedWeight& w, int64_t k)
      : type(w.scale),
        by_rows(w.by_rows(k)),
        shared(w.group_n != 1),
        at(packed::unit_code_bytes(w)),
        zeros_at(at + packed::unit_scale_bytes(w, k)),
        steps(by_rows || w.group_k >= packed::kColumns ? 8 : int(w.group_k) / 16),
        log_steps(steps == 8   ? 3
                  : steps == 4 ? 2
                  : steps == 2 ? 1
                               : 0) {}

  // Which rows one of 128 threads owns, as the index of the first row's scale in a group. The scales of its
  // two rows lie side by side.
  __device__ __forceinline__ static unsigned rows_of(unsigned thread) {
    return thread / 32 * 16 + thread % 32 / 4 * 2;
  }
  // The index of row r's scale in the group of k16 step `step`. The scale of row r + 8 is apart() elements
  // behind it.
  __device__ __forceinline__ int index(unsigned rows, int step) const {
    return (step >> log_steps) * (shared ? 1 : packed::kRows) + (shared ? 0 : rows);
  }
  __device__ __forceinline__ int apart() const { return shared ? 0 : 1; }

  // The scales (added zeros) of both rows in the group of k16 step `step`.
  __device__ __forceinline__ RowPair scales(const unsigned char* unit, unsigned rows, int step) const {
    const int i = index(rows, step);
    return read_scales(type, unit + at, i, i + apart());
  }
  __device__ __forceinline__ RowPair added_zeros(const unsigned char* unit, unsigned rows, int step) const {
    const int i = index(rows, step);
    return read_scales(type, unit + zeros_at, i, i + apart());
  }
  // Zeros that are subtracted, as numbers of T.
  template <class T>
  __device__ __forceinline__ uint32_t zero_pair(const unsigned char* unit, unsigned rows, int step) const {
    const auto* const zeros = reinterpret_cast<const int8_t*>(unit + zeros_at) + index(rows, step);
    return round_pair<T>(float(zeros[0]), float(zeros[apart()]));
  }
  // The scales or added zeros of both rows in a group, as they are stored: two 16-bit numbers, or two bytes.
  template <int BYTES>
  __device__ __forceinline__ static uint32_t pair(const unsigned char* scales, unsigned rows, int group) {
    const unsigned i = group * packed::kRows + rows;
    if constexpr (BYTES == 2) return load_vector<uint32_t>(scales + 2 * i);
    return load_vector<uint16_t>(scales + i);
  }
  // Whether kernels multiply by pairs of scales. Scales of the other types are not exact in T, or are rare.
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
