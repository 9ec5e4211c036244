// Tensor cores, one warpgroup at a time: wgmma (sm_90a). A warpgroup is four warps, whose first index is a
// multiple of 4. wgmma reads b from shared memory, and a from shared memory or registers. It runs
// asynchronously:
//
//   wgmma_fence(d);                           the registers are ready
//   wgmma<BFloat16>(d, a, b, accumulate);     several: products into the same d follow each other
//   wgmma_commit();                           ... are one group
//   wgmma_wait<0>(d);                         d holds the result, and a and b may be overwritten
//
// Between wgmma_fence() and wgmma_wait() nothing else may access d or the registers of a. All threads of the
// warpgroup must execute all of these calls. Shared memory that threads wrote is visible to wgmma after each
// of them has called fence_async_shared() and a barrier. Data that the TMA wrote needs neither.
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/swizzle.cuh"
#include "cuda/device/sync.cuh"

#if defined(__CUDACC__)
#include "cuda/device/wgmma_asm.cuh"
#else
#include "simt/wgmma.h"
#endif

namespace fastgemm::FASTGEMM_TARGET {

// Which index of an operand runs along the rows of its tiles in shared memory: k, or m (of a) or n (of b).
// Only 16-bit types may have Major::mn.
enum class Major { k, mn };

// The descriptor of an operand in shared memory. `low` has the address >> 4 (14 bits) and leading >> 4 (14
// bits from bit 16 on), `high` has stride >> 4 (14 bits) and the swizzle (2 bits from bit 30 on).
struct MatrixDescriptor {
  uint32_t low, high;

  // The descriptor of the matrix that begins `bytes` bytes further on, a multiple of 16.
  __device__ __forceinline__ MatrixDescriptor at(int bytes) const {
    return {low + uint32_t(bytes) / 16, high};
  }
  __device__ __forceinline__ uint64_t bits() const { return uint64_t{high} << 32 | low; }
};

// One instruction takes 32 bytes along k (16 elements of 2 bytes). Its operand is made of tiles of 8 rows,
// which follow one another in memory. The length of a row is that of the swizzle, or 16 bytes without one.
// `leading` and `stride` are distances in bytes. With Major::k, `stride` is the distance to the next 8 of m
// or n. Without swizzle a row has half of the 32 bytes along k, and `leading` is the distance to the other
// half; with a swizzle, `leading` is ignored. With Major::mn and a swizzle, `leading` is the distance to the
// next part of m or n that is as long as a row, and `stride` that to the next 8 of k. Without swizzle the two
// are exchanged.
__device__ __forceinline__ MatrixDescriptor matrix_descriptor(const void* shared, Swizzle swizzle,
                                                              int leading, int stride) {
#if !defined(__CUDACC__)
  check_descriptor(shared, int(swizzle), leading, stride);
#endif
  const uint32_t mode = swizzle == Swizzle::none       ? 0
                        : swizzle == Swizzle::bytes128 ? 1
                        : swizzle == Swizzle::bytes64  ? 2
                                                       : 3;
  return {(shared_address(shared) & 0x3ffff) >> 4 | uint32_t(leading) >> 4 << 16,
          uint32_t(stride) >> 4 | mode << 30};
}

// Operands as load_box() writes them: boxes of `rows` rows, as wide as the swizzle (16 bytes without one),
// one box after another along the rows of the matrix.
template <Swizzle swizzle>
inline constexpr int kBoxWidth = swizzle == Swizzle::none ? 16 : int(swizzle);

template <Major major, Swizzle swizzle>
__device__ __forceinline__ MatrixDescriptor box_descriptor(const void* boxes, int rows) {
  const int next_box = rows * kBoxWidth<swizzle>, next_8_rows = 8 * kBoxWidth<swizzle>;
  if constexpr (major == Major::mn && swizzle == Swizzle::none)
    return matrix_descriptor(boxes, swizzle, next_8_rows, next_box);
  else
    return matrix_descriptor(boxes, swizzle, next_box, next_8_rows);
}

// The distance in bytes from the operand of the first instruction to that of instruction `step` along k.
template <Major major, Swizzle swizzle>
__device__ __forceinline__ constexpr int box_step(int rows, int step) {
  constexpr int kWidth = kBoxWidth<swizzle>;
  if constexpr (major == Major::mn) return step * 16 * kWidth;  // 16 rows of the box
  return step * 32 / kWidth * (rows * kWidth) + step * 32 % kWidth;
}

#if defined(__CUDACC__)

// The text after the predicate for a 16-bit type: the signs of a and b, then for each operand in shared
// memory whether it is transposed.
constexpr char transpose_bit(Major m) { return m == Major::mn ? '1' : '0'; }
template <Major... majors>
struct WgmmaTail;
template <Major a, Major b>
struct WgmmaTail<a, b> {
  static constexpr char kTail[] = {',', '1', ',', '1', ',', transpose_bit(a), ',', transpose_bit(b), 0};
};
template <Major b>
struct WgmmaTail<b> {
  static constexpr char kTail[] = {',', '1', ',', '1', ',', transpose_bit(b), 0};
};

template <class T, Major... majors>
struct WgmmaText;
template <Major... majors>
struct WgmmaText<Half, majors...> : WgmmaTail<majors...> {
  static constexpr char kTypes[] = "k16.f32.f16.f16";
};
template <Major... majors>
struct WgmmaText<BFloat16, majors...> : WgmmaTail<majors...> {
  static constexpr char kTypes[] = "k16.f32.bf16.bf16";
};
template <Major... majors>
struct WgmmaText<Tf32, majors...> {
  static constexpr char kTypes[] = "k8.f32.tf32.tf32", kTail[] = ", 1, 1";
};
template <Major... majors>
struct WgmmaText<int8_t, majors...> {
  static constexpr char kTypes[] = "k32.s32.s8.s8", kTail[] = "";
};
template <Major... majors>
struct WgmmaText<uint8_t, majors...> {
  static constexpr char kTypes[] = "k32.s32.u8.u8", kTail[] = "";
};
template <Major... majors>
struct WgmmaText<MixedBytes<uint8_t, int8_t>, majors...> {
  static constexpr char kTypes[] = "k32.s32.u8.s8", kTail[] = "";
};
template <Major... majors>
struct WgmmaText<MixedBytes<int8_t, uint8_t>, majors...> {
  static constexpr char kTypes[] = "k32.s32.s8.u8", kTail[] = "";
};

// Keeps the compiler from moving instructions that use these registers across this point.
template <int R>
__device__ __forceinline__ void tie_registers(float (&d)[R]) {
  FASTGEMM_UNROLL
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int R>
__device__ __forceinline__ void tie_registers(uint32_t (&d)[R]) {
  FASTGEMM_UNROLL
  for (int i = 0; i < R; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <class Acc, int BLOCKS, int R>
__device__ __forceinline__ void tie_registers(Acc (&d)[BLOCKS][R]) {
  FASTGEMM_UNROLL
  for (int i = 0; i < BLOCKS; ++i) tie_registers(d[i]);
}

// An undefined value for registers of a, in rows whose sums are not used. The registers of an operand must be
// consecutive. With zeros here, the compiler would write the zeros again for each instruction, and copy the
// values beside them.
__device__ __forceinline__ uint32_t unread_register() {
  uint32_t x;
  asm volatile("" : "=r"(x));
  return x;
}

// The arguments are all accumulators of the products that follow, and the registers of a, if any.
template <class... Registers>
__device__ __forceinline__ void wgmma_fence(Registers&... registers) {
  (tie_registers(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `pending` groups are in flight. The arguments are the accumulators, so that the
// compiler does not move reads of them before the wait.
template <int pending, class... Registers>
__device__ __forceinline__ void wgmma_wait(Registers&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  (tie_registers(registers), ...);
}

// d (64, 2 R) = a (64, K) * b (K, 2 R), plus d if `accumulate`. K is 32 bytes of T: Half, BFloat16, Tf32,
// int8_t, uint8_t, MixedBytes of these, or Fp8Pair (device/fp8.cuh). Integers wrap modulo 2^32. WgmmaLayout
// gives the layout of d.
template <class T, Major a_major = Major::k, Major b_major = Major::k, int R>
__device__ __forceinline__ void wgmma(Accumulator<T> (&d)[R], MatrixDescriptor a, MatrixDescriptor b,
                                      bool accumulate = true) {
  static_assert(sizeof(T) == 2 || (a_major == Major::k && b_major == Major::k));
  WgmmaAsm<R>::template run<WgmmaText<T, a_major, b_major>>(d, a.bits(), b.bits(), uint32_t(accumulate));
}
// The same with a in registers, in the layout of WgmmaLayout.
template <class T, Major b_major = Major::k, int R>
__device__ __forceinline__ void wgmma(Accumulator<T> (&d)[R], const uint32_t (&a)[4], MatrixDescriptor b,
                                      bool accumulate = true) {
  static_assert(sizeof(T) == 2 || b_major == Major::k);
  WgmmaAsm<R>::template run<WgmmaText<T, b_major>>(d, a, b.bits(), uint32_t(accumulate));
}

#else

__forceinline__ uint32_t unread_register() { return 0x7fc07fc0u; }  // NaN

template <class Registers>
__forceinline__ void tie_registers(Registers&) {}
template <class... Registers>
__forceinline__ void wgmma_fence(Registers&... registers) {
  const WgmmaRegisters named[] = {{registers, int(sizeof(registers) / 4)}..., {}};
  emulate_wgmma_fence(named, int(sizeof...(registers)));
}
__forceinline__ void wgmma_commit() { emulate_wgmma_commit(); }
template <int pending, class... Registers>
__forceinline__ void wgmma_wait(Registers&...) {
  emulate_wgmma_wait(pending);
}
template <class T, Major a_major = Major::k, Major b_major = Major::k, int R>
__forceinline__ void wgmma(Accumulator<T> (&d)[R], MatrixDescriptor a, MatrixDescriptor b,
                           bool accumulate = true) {
  static_assert(sizeof(T) == 2 || (a_major == Major::k && b_major == Major::k));
  emulate_wgmma<T>(
      {d, 2 * R, {a.bits(), a_major == Major::mn}, {b.bits(), b_major == Major::mn}, nullptr, accumulate});
}
template <class T, Major b_major = Major::k, int R>
__forceinline__ void wgmma(Accumulator<T> (&d)[R], const uint32_t (&a)[4], MatrixDescriptor b,
                           bool accumulate = true) {
  static_assert(sizeof(T) == 2 || b_major == Major::k);
  emulate_wgmma<T>({d, 2 * R, {}, {b.bits(), b_major == Major::mn}, a, accumulate});
}

#endif

}  // namespace fastgemm::FASTGEMM_TARGET
