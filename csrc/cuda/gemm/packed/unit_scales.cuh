// Scales and zeros of a unit (core/packed_weight.h) as a thread of wgmma needs them. Contract: a thread owns
// rows r and r + 8 of the unit; UnitScales::scales() and zeros() read both values of a group of columns at
// once, and of_rows() those of a scale that serves whole rows.
#pragma once

#include "core/packed_weight.h"
#include "cuda/device/numeric.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Of row r and of row r + 8.
struct RowPair {
  float first, second;
};

// Elements i and j of an array of scales, in a few bit operations; packed::scale_at() is the definition. All
// threads of a block have the same type.
__device__ __forceinline__ RowPair read_scales(ScaleType type, const unsigned char* scales, int i, int j) {
  const auto each = [&](auto&& read) { return RowPair{read(i), read(j)}; };
  switch (type) {
    case ScaleType::f32:
      return each([&](int at) { return reinterpret_cast<const float*>(scales)[at]; });
    case ScaleType::bf16:
      return each([&](int at) { return widen(reinterpret_cast<const BFloat16*>(scales)[at]); });
    case ScaleType::f16:
      return each([&](int at) { return widen(reinterpret_cast<const Half*>(scales)[at]); });
    case ScaleType::e8m0:
      return each([&](int at) {
        const uint32_t e = scales[at];
        return __uint_as_float(e == 255 ? 0x7fc00000u : e == 0 ? 1u << 22 : e << 23);
      });
    default:  // the exponent and mantissa of fp16, whose bias is larger by 8
      return each([&](int at) {
        const uint32_t x = scales[at];
        const float value = widen(Half{uint16_t((x & 128) << 8 | (x & 127) << 7)}) * 256.0f;
        return (x & 127) == 127 ? __uint_as_float(0x7fc00000u) : value;
      });
  }
}

// Where scales and zeros lie in a unit. Made on the host.
struct UnitScales {
  ScaleType type;
  Zero zero;
  bool by_rows;          // none are in the unit
  bool shared;           // one scale for all rows of the unit
  int at, zeros_at;      // byte offsets in the unit
  int steps, log_steps;  // k16 steps in a group; 8 and 3 if the group is a unit or more

  UnitScales() = default;
  UnitScales(const PackedWeight& w, int64_t k)
      : type(w.scale),
        zero(w.zero),
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
    const int group = step >> log_steps;
    return shared ? group : group * packed::kRows + thread / 32 * 16 + thread % 32 / 4 * 2;
  }
  __device__ __forceinline__ int apart() const { return shared ? 0 : 1; }

  // Of the group of k16 step `step`, in this thread's rows.
  __device__ __forceinline__ RowPair scales(const unsigned char* unit, int thread, int step) const {
    const int i = index(thread, step);
    return read_scales(type, unit + at, i, i + apart());
  }
  __device__ __forceinline__ RowPair zeros(const unsigned char* unit, int thread, int step) const {
    if (zero == Zero::none) return {0, 0};
    const int i = index(thread, step);
    if (zero == Zero::added) return read_scales(type, unit + zeros_at, i, i + apart());
    const unsigned char* const zeros = unit + zeros_at;
    return {float(int8_t(zeros[i])), float(int8_t(zeros[i + apart()]))};
  }
};

// The zeros of whole rows: int8 if they are subtracted, else float32.
__device__ __forceinline__ float row_zero(const PackedWeight& w, int row) {
  if (w.zero == Zero::none) return 0;
  return w.zero == Zero::subtracted ? float(static_cast<const int8_t*>(w.zeros)[row])
                                    : static_cast<const float*>(w.zeros)[row];
}

}  // namespace fastgemm::FASTGEMM_TARGET
