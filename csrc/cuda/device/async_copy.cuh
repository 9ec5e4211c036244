// cp.async (sm_80+): copies from global to shared memory without going through registers.
#pragma once

#include "cuda/device/sync.cuh"

namespace fastgemm::FASTGEMM_TARGET {

#if defined(__CUDACC__)

// Copies `bytes` bytes (4, 8 or 16). Both addresses must be aligned to that. The first `valid` bytes come
// from global memory, the others are zero. With valid == 0 nothing is read.
template <int bytes>
__device__ __forceinline__ void copy_async(void* to_shared, const void* from, int valid = bytes) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  if constexpr (bytes == 16)  // bypasses L1, because the line is used once
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)), "l"(from),
                 "r"(valid)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to_shared)), "l"(from),
                 "n"(bytes), "r"(valid)
                 : "memory");
}
// Copies 16 bytes and lets L2 prefetch the 256 bytes around them, which later copies will read.
__device__ __forceinline__ void copy_async_prefetching(void* to_shared, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(shared_address(to_shared)),
               "l"(from)
               : "memory");
}
// Copies 16 bytes with the L2 eviction priority evict-first: for data that is not read again soon, so that
// other lines stay in L2.
__device__ __forceinline__ void copy_async_evict_first(void* to_shared, const void* from, int valid) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address(to_shared)),
      "l"(from), "r"(valid), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void commit_async_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's committed groups are in flight.
template <int pending>
__device__ __forceinline__ void wait_async_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#else

using simt::commit_async_copies;
using simt::copy_async;
using simt::wait_async_copies;
inline void copy_async_evict_first(void* to_shared, const void* from, int valid) {
  copy_async<16>(to_shared, from, valid);
}
inline void copy_async_prefetching(void* to_shared, const void* from) { copy_async<16>(to_shared, from); }

#endif

}  // namespace fastgemm::FASTGEMM_TARGET
