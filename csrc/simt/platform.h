// Defines the names of CUDA C++ that kernels use, for an ordinary C++ compiler. cuda/device/platform.cuh
// includes it in place of cuda_runtime.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cpu/gemm/element.h"
#include "simt/async.h"
#include "simt/order.h"
#include "simt/runtime.h"
#include "simt/trace.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// One block runs at a time, so its shared variables may be static. They are thread-local, which distinguishes
// them from other static variables: csrc/simt/memory.cpp finds them in the module's thread-local segment. A
// red zone lies before each variable, so that an access just beyond one variable does not hit the next
// (simt.cmake keeps them in this order).
#define __shared__                                                            \
  [[gnu::used]] static thread_local char FASTGEMM_RED_ZONE(__COUNTER__)[128]; \
  static thread_local
#define FASTGEMM_RED_ZONE(n) FASTGEMM_RED_ZONE_(n)
#define FASTGEMM_RED_ZONE_(n) red_zone_##n

// Warps and blocks.

__forceinline__ void __syncthreads() { fastgemm::simt::runtime::block_barrier(0, 0); }
// Orders the memory accesses of its lanes; shuffles and votes do not.
__forceinline__ void __syncwarp(uint32_t mask = fastgemm::simt::runtime::kFullWarp) {
  fastgemm::simt::runtime::warp_barrier(mask);
}

namespace fastgemm::simt::runtime {

// Every lane gets the value of lane `source`.
template <class T>
T shuffle(uint32_t mask, T value, int source) {
  struct Lane {
    T value, received;
    int source;
  } lane{value, value, source};
  warp_exchange(mask, &lane, [](void* const(&lanes)[kWarp]) {
    for (void* to : lanes) {
      if (!to) continue;
      auto& receiver = *static_cast<Lane*>(to);
      const void* from = lanes[receiver.source];
      if (!from) fail_shuffle(receiver.source);
      receiver.received = static_cast<const Lane*>(from)->value;
    }
  });
  return lane.received;
}

}  // namespace fastgemm::simt::runtime

template <class T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32) {
  const int lane = fastgemm::simt::runtime::lane_index();
  return fastgemm::simt::runtime::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes) {
  return fastgemm::simt::runtime::shuffle(mask, value, (fastgemm::simt::runtime::lane_index() ^ lanes) & 31);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned lanes, int width = 32) {
  const int lane = fastgemm::simt::runtime::lane_index(), source = lane - int(lanes);
  return fastgemm::simt::runtime::shuffle(mask, value, source >= lane / width * width ? source : lane);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned lanes, int width = 32) {
  const int lane = fastgemm::simt::runtime::lane_index(), source = lane + int(lanes);
  return fastgemm::simt::runtime::shuffle(mask, value, source / width == lane / width ? source : lane);
}

inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  struct Lane {
    int predicate;
    uint32_t ballot;
  } lane{predicate, 0};
  fastgemm::simt::runtime::warp_exchange(mask, &lane, [](void* const(&lanes)[32]) {
    uint32_t ballot = 0;
    for (int i = 0; i < 32; ++i)
      if (lanes[i] && static_cast<Lane*>(lanes[i])->predicate) ballot |= 1u << i;
    for (void* to : lanes)
      if (to) static_cast<Lane*>(to)->ballot = ballot;
  });
  return lane.ballot;
}
template <class T>
uint32_t __match_any_sync(uint32_t mask, T value) {
  struct Lane {
    T value;
    uint32_t same;
  } lane{value, 0};
  fastgemm::simt::runtime::warp_exchange(mask, &lane, [](void* const(&lanes)[32]) {
    for (void* to : lanes)
      for (int i = 0; to && i < 32; ++i)
        if (lanes[i] && static_cast<Lane*>(lanes[i])->value == static_cast<Lane*>(to)->value)
          static_cast<Lane*>(to)->same |= 1u << i;
  });
  return lane.same;
}
inline int __any_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
inline int __popc(uint32_t x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(uint32_t(x)) + 1; }

inline void __threadfence() {}
inline void __nanosleep(unsigned) { fastgemm::simt::runtime::yield(); }

// Arithmetic and bits.

template <class T>
constexpr T min(T x, std::type_identity_t<T> y) {
  return y < x ? y : x;
}
template <class T>
constexpr T max(T x, std::type_identity_t<T> y) {
  return x < y ? y : x;
}

inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __int_as_float(int32_t x) { return std::bit_cast<float>(x); }
inline int32_t __float_as_int(float x) { return std::bit_cast<int32_t>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int32_t __double2loint(double x) { return int32_t(std::bit_cast<uint64_t>(x)); }
inline int32_t __double2hiint(double x) { return int32_t(std::bit_cast<uint64_t>(x) >> 32); }
inline double __hiloint2double(int32_t high, int32_t low) {
  return std::bit_cast<double>(uint64_t(uint32_t(high)) << 32 | uint32_t(low));
}
inline int32_t __mulhi(int32_t x, int32_t y) { return int32_t(int64_t{x} * y >> 32); }

// Selects four of the eight bytes of (high, low) by the nibbles of the selector.
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> 4 * i & 0xf;
    uint32_t byte = uint32_t(bytes >> 8 * (nibble & 7)) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;  // replicates the sign
    result |= byte << 8 * i;
  }
  return result;
}

// c plus the sum of four products of signed bytes, modulo 2^32.
inline int32_t __dp4a(int32_t a, int32_t b, int32_t c) {
  uint32_t sum = uint32_t(c);
  for (int i = 0; i < 32; i += 8) sum += uint32_t(int32_t(int8_t(a >> i)) * int32_t(int8_t(b >> i)));
  return int32_t(sum);
}

template <class T>
T __ldg(const T* p) {
  return *p;
}

// Counterparts of functions in cuda/device.
namespace fastgemm::simt {

// The type of one access: a vector type, so that g++ does not split the access.
template <size_t bytes>
struct WordOf {
  typedef uint8_t type __attribute__((vector_size(bytes), may_alias));
};
template <size_t bytes>
using Word = typename WordOf<bytes>::type;

template <class T>
T load_speculative(const T& x) {
  trace::let_undefined(&x);
  return std::bit_cast<T>(*reinterpret_cast<const Word<sizeof(T)>*>(&x));
}

inline float half_to_float(uint16_t bits) { return scalar::to_float(scalar::Half{bits}); }
inline uint16_t float_to_half(float x) { return scalar::to_half(x).bits; }
inline uint16_t float_to_bfloat16(float x) { return scalar::to_bfloat16(x).bits; }

inline uint32_t shared_address(const void* p) { return uint32_t(reinterpret_cast<uintptr_t>(p)); }
__forceinline__ void named_barrier(int id, int threads) { runtime::block_barrier(id, threads); }
inline bool elect_one() { return __ballot_sync(runtime::kFullWarp, 1) != 0 && runtime::lane_index() == 0; }
template <int registers>
__forceinline__ void release_registers() {
  runtime::set_registers(registers);
}
template <int registers>
__forceinline__ void claim_registers() {
  runtime::set_registers(registers);
}
inline void fence_async_shared() { order::fence_async(); }
__forceinline__ void store_release(uint32_t* flag, uint32_t value) {
  order::release(flag);
  *flag = value;
}
__forceinline__ uint32_t load_acquire(const uint32_t* flag) {
  const uint32_t value = *flag;
  order::acquire(flag);
  return value;
}
inline void spin_wait() { runtime::yield(); }

}  // namespace fastgemm::simt
