// Clusters (sm_90): blocks that run at the same time on neighbouring multiprocessors. They can access each
// other's shared memory, and one load of the tensor memory accelerator can write to all of them.
// LaunchShape::cluster asks for clusters.
//
// Other blocks' memory may be used between two barriers of the cluster. The first one makes sure that all
// blocks have begun and have initialized what others use. The second one makes sure that no block has ended.
// It is not needed if each block waits, at a barrier of its own, for all that others send it
// (store_async_remote).
#pragma once

#include "cuda/device/tma.cuh"

namespace fastgemm::FASTGEMM_TARGET {

#if defined(__CUDACC__)

// The block's place in its cluster.
__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// A barrier of all threads of the cluster, in two halves that whole warps execute. Writes before the first
// half are visible after the second.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same variable in the dynamic shared memory of another block. It can be read and written as in this
// block.
template <class T>
__device__ __forceinline__ T* map_shared_rank(T* own, int rank) {
  uint64_t address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(own), "r"(rank));
  return reinterpret_cast<T*>(address);
}

// Arrives at another block's barrier, which is at the same address as `own` in this block. Threads that wait
// for it use wait_cluster_phase().
__device__ __forceinline__ void arrive_remote(Barrier* own, int rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(rank));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}
// As wait_phase(), for a barrier at which other blocks of the cluster arrive.
__device__ __forceinline__ void wait_cluster_phase(Barrier* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred P;\nRETRY:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 P, [%0], %1;\n"
      "@P bra DONE;\nbra RETRY;\nDONE:\n}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}

// Stores 16 bytes to the same place in another block's shared memory. They count on that block's barrier, at
// the same address as `own` in this block, which expects them. Threads that wait for it see them without a
// fence.
template <class V>
__device__ __forceinline__ void store_async_remote(void* to, const V& v, Barrier* own, int rank) {
  static_assert(sizeof(V) == 16);
  const auto bits = __builtin_bit_cast(uint4, v);
  asm volatile(
      "{\n.reg .b32 to, on;\nmapa.shared::cluster.u32 to, %0, %2;\nmapa.shared::cluster.u32 on, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [to], {%3, %4, %5, %6}, [on];\n}" ::
          "r"(shared_address(to)),
      "r"(shared_address(own)), "r"(rank), "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w)
      : "memory");
}

// Loads a box to the same place in every block of the cluster whose bit is set. Each of these blocks counts
// the bytes of its copy on its own barrier, at the same address as `b` in this block.
__device__ __forceinline__ void load_box_multicast(void* to_shared, const TensorMap* map, Barrier* b,
                                                   int column, int row, int plane, uint32_t cta_mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to_shared)),
      "l"(map), "r"(shared_address(b)), "r"(column), "r"(row), "r"(plane),
      "h"(static_cast<uint16_t>(cta_mask))
      : "memory");
}

#else

using simt::arrive_remote;
using simt::load_box_multicast;
using simt::runtime::cluster_arrive;
using simt::runtime::cluster_rank;
using simt::runtime::cluster_wait;

template <class V>
void store_async_remote(void* to, const V& v, Barrier* own, int rank) {
  static_assert(sizeof(V) == 16);
  simt::store_remote(to, &v, own, rank);
}
template <class T>
T* map_shared_rank(T* own, int rank) {
  return static_cast<T*>(simt::runtime::in_shared_of(own, rank));
}
__forceinline__ void wait_cluster_phase(Barrier* b, uint32_t parity) { wait_phase(b, parity); }

#endif

__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace fastgemm::FASTGEMM_TARGET
