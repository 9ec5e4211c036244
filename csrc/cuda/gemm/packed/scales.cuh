// Scales and zeros of 16 rows of a unit become float32 in shared memory of a warp, each of them once: lanes
// convert different ones, whatever their type. Contract: after convert_scales() and __syncwarp(),
// numbers[group][2 i] and numbers[group][2 i + 1] are those of rows i and i + 8, which one thread needs
// (packed::scale_in_unit).
#pragma once

#include "core/packed_weight.h"
#include "cuda/device/pairs.cuh"
#include "cuda/gemm/packed/unit_scales.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// `from` is a slice: for each group 16 numbers of this type or, with `by_unit`, one, from index `first` on.
template <class Number>
__device__ __forceinline__ void convert_numbers(float* to, int groups, bool by_unit, int first,
                                                Number&& number) {
  FASTGEMM_NO_UNROLL
  for (int i = int(threadIdx.x) % 32; i < groups * 16; i += 32) to[i] = number(by_unit ? first + i / 16 : i);
}
__device__ __forceinline__ void convert_scales(float* to, const PackedWeight& w, const unsigned char* scales,
                                               int groups, bool by_unit, int first) {
  convert_numbers(to, groups, by_unit, first, [&](int i) { return read_scale(w.scale, scales, i); });
}
__device__ __forceinline__ void convert_zeros(float* to, const PackedWeight& w, const unsigned char* zeros,
                                              int groups, bool by_unit, int first) {
  convert_numbers(to, groups, by_unit, first, [&](int i) {
    return w.zero == Zero::subtracted ? float(int8_t(zeros[i])) : read_scale(w.scale, zeros, i);
  });
}

// Whether scales of this type are numbers of T, so that code * scale in T is rounded once.
template <class T>
__host__ __device__ __forceinline__ bool fits_in(ScaleType type) {
  return type == ScaleType::e4m3 || type == (std::is_same_v<T, Half> ? ScaleType::f16 : ScaleType::bf16) ||
         (type == ScaleType::e8m0 && std::is_same_v<T, BFloat16>);
}

}  // namespace fastgemm::FASTGEMM_TARGET
