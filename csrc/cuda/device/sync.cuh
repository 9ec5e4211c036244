// Synchronization and roles inside a block.
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

#if defined(__CUDACC__)

// The 32-bit shared-memory address that the instructions below take.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A barrier among `threads` threads (whole warps) of the block; id 1 to 15 (0 is __syncthreads).
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// True in one thread of a full warp, the same in each call. The compiler treats a branch on it as uniform.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{\n.reg .pred P;\nelect.sync _|P, 0xffffffff;\nselp.b32 %0, 1, 0, P;\n}" : "=r"(elected));
  return elected != 0;
}

// Releases or claims registers, for all four warps of a warpgroup (sm_90a).
template <int registers>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// threadIdx.x % 32, read again at each call, so that no register has to hold it in between.
__device__ __forceinline__ int fresh_lane() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Returns x. The compiler then computes values that depend on it again where they are used, and no register
// has to hold them.
__device__ __forceinline__ int fresh(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Orders this thread's ordinary accesses to shared memory before later accesses of the asynchronous proxy
// (TMA).
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Flags in global memory, by which one block tells another that its results are written.
__device__ __forceinline__ void store_release(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ __forceinline__ void spin_wait() { __nanosleep(20); }

// Programmatic dependent launch (sm_90), if the dependent kernel is launched with LaunchShape::overlaps
// (launch.cuh). launch_dependents() lets the next kernel of the stream begin when every block has called it
// or ended. grid_dependency_wait() waits until all blocks of the kernel before have ended and their writes
// are visible.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Asks L2 for the line at this address. Nothing is read: what the line holds may still change.
__device__ __forceinline__ void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

#else

using simt::claim_registers;
using simt::elect_one;
using simt::fence_async_shared;
using simt::load_acquire;
using simt::named_barrier;
using simt::release_registers;
using simt::shared_address;
using simt::spin_wait;
using simt::store_release;
inline void launch_dependents() {}  // launches run one after the other
inline void grid_dependency_wait() {}
inline void prefetch_line(const void*) {}

__forceinline__ int fresh_lane() { return int(threadIdx.x) % 32; }
__forceinline__ int fresh(int x) { return x; }

#endif

// The warp's index in its block, in a register that the compiler knows to be the same in all 32 lanes.
__device__ __forceinline__ int warp_index() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
}

}  // namespace fastgemm::FASTGEMM_TARGET
