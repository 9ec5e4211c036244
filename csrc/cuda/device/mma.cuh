// Tensor cores, one warp at a time: mma.sync (sm_80+; fp64 tiles of 16 rows: sm_90). MmaLayout says which
// elements the registers of a lane hold.
#pragma once

#include "cuda/device/fragment.cuh"

#if !defined(__CUDACC__)
#include "simt/matrix.h"
#endif

namespace fastgemm::FASTGEMM_TARGET {

#if defined(__CUDACC__)

template <class T>
struct MmaText;
template <>
struct MmaText<Half> {
  static constexpr char kText[] = "m16n8k16.row.col.f32.f16.f16.f32";
};
template <>
struct MmaText<BFloat16> {
  static constexpr char kText[] = "m16n8k16.row.col.f32.bf16.bf16.f32";
};
template <>
struct MmaText<Tf32> {
  static constexpr char kText[] = "m16n8k8.row.col.f32.tf32.tf32.f32";
};
template <>
struct MmaText<int8_t> {
  static constexpr char kText[] = "m16n8k32.row.col.s32.s8.s8.s32";
};
template <>
struct MmaText<uint8_t> {
  static constexpr char kText[] = "m16n8k32.row.col.s32.u8.u8.s32";
};
template <>
struct MmaText<MixedBytes<uint8_t, int8_t>> {
  static constexpr char kText[] = "m16n8k32.row.col.s32.u8.s8.s32";
};
template <>
struct MmaText<MixedBytes<int8_t, uint8_t>> {
  static constexpr char kText[] = "m16n8k32.row.col.s32.s8.u8.s32";
};

// d (16, 8) += a (16, K) * b (K, 8) in fragments of MmaLayout<T>, where K is 32 bytes of T: Half, BFloat16,
// Tf32, int8_t, uint8_t or MixedBytes of these. Integers wrap modulo 2^32.
template <class T>
__device__ __forceinline__ void mma(Accumulator<T> (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (sizeof(T) == 1)
    asm volatile("mma.sync.aligned.%10 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(MmaText<T>::kText));
  else
    asm volatile("mma.sync.aligned.%10 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(MmaText<T>::kText));
}

// The same in fp64, in fragments of MmaLayout<double, M, K>. (M, K) is (8, 4) on every GPU; on sm_90 also
// (16, 4), (16, 8) and (16, 16).
template <int M, int K>
__device__ __forceinline__ void mma_f64(double (&d)[M / 4], const double (&a)[M * K / 32],
                                        const double (&b)[K / 4]) {
  static_assert((M == 8 && K == 4) || (M == 16 && (K == 4 || K == 8 || K == 16)));
  if constexpr (M == 8)
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d[0]), "+d"(d[1])
                 : "d"(a[0]), "d"(b[0]));
  else if constexpr (K == 4)
    asm volatile(
        "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(b[0]));
  else if constexpr (K == 8)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
        "%1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, "
        "%11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
          "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

#else

template <class T>
__forceinline__ void mma(Accumulator<T> (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[] = {b0, b1};
  emulate_mma<T, 16, 32 / int(sizeof(T))>(d, a, b);
}
template <int M, int K>
__forceinline__ void mma_f64(double (&d)[M / 4], const double (&a)[M * K / 32], const double (&b)[K / 4]) {
  static_assert((M == 8 && K == 4) || (M == 16 && (K == 4 || K == 8 || K == 16)));
  emulate_mma<double, M, K>(d, a, b);
}

#endif

}  // namespace fastgemm::FASTGEMM_TARGET
