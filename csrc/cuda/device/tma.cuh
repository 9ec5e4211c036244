// The tensor memory accelerator (sm_90). One thread asks for a box of a tensor. The hardware computes the
// addresses, fills what lies outside the tensor with zeros, and reports the bytes to a barrier in shared
// memory.
#pragma once

#include "cuda/device/swizzle.cuh"
#include "cuda/device/sync.cuh"

#if defined(__CUDACC__)
#include <cuda.h>
#endif

namespace fastgemm::FASTGEMM_TARGET {

#if defined(__CUDACC__)

using TensorMap = CUtensorMap;
using Barrier = uint64_t;  // 8-byte aligned, in shared memory

// One thread initializes a barrier and calls fence_barrier_init(). __syncthreads() must follow before other
// threads use the barrier, and cluster_sync() before threads of other blocks do.
__device__ __forceinline__ void init_barrier(Barrier* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  fence_async_shared();
}
// Arrives, and makes the phase also wait for `bytes` bytes of asynchronous copies.
__device__ __forceinline__ void arrive_expecting(Barrier* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(Barrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Arrives when all copies have landed for which this thread has called copy_async(); nobody waits for them. A
// thread that has wgmma read them calls fence_async_shared() after it has waited for the phase.
__device__ __forceinline__ void arrive_after_copies(Barrier* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}
// Waits for the end of the phase of this parity: 0 for the first phase, then alternating. On a new barrier
// the wait for parity 1 returns at once.
__device__ __forceinline__ void wait_phase(Barrier* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred P;\nRETRY:\nmbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n@P bra DONE;\nbra "
      "RETRY;\nDONE:\n}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}

// Prefetches a TMA descriptor that is a kernel parameter, to hide its latency behind the prologue.
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads the box at (column, row, plane) to shared memory (128-byte aligned), and counts its bytes on b.
__device__ __forceinline__ void load_box(void* to_shared, const TensorMap* map, Barrier* b, int column,
                                         int row, int plane) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], [%2];" ::"r"(shared_address(to_shared)),
      "l"(map), "r"(shared_address(b)), "r"(column), "r"(row), "r"(plane)
      : "memory");
}

// The same with the L2 eviction priority evict-first, for data that is not read again soon. Modified lines,
// which would have to be written back to memory, then stay in L2.
__device__ __forceinline__ void load_box_evict_first(void* to_shared, const TensorMap* map, Barrier* b,
                                                     int column, int row, int plane) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to_shared)),
      "l"(map), "r"(shared_address(b)), "r"(column), "r"(row), "r"(plane), "l"(policy)
      : "memory");
}

// Loads `bytes` contiguous bytes, a multiple of 16. Both addresses are 16-byte aligned. (to_shared is
// 128-byte aligned, so that boxes may use the same memory.)
__device__ __forceinline__ void load_bytes(void* to_shared, const void* from, int bytes, Barrier* b) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to_shared)),
      "l"(from), "r"(bytes), "r"(shared_address(b))
      : "memory");
}
// The same for data that is not read again soon (load_box_evict_first()).
__device__ __forceinline__ void load_bytes_evict_first(void* to_shared, const void* from, int bytes,
                                                       Barrier* b) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
      "[%3], "
      "%4;" ::"r"(shared_address(to_shared)),
      "l"(from), "r"(bytes), "r"(shared_address(b)), "l"(policy)
      : "memory");
}

// Stores a box from shared memory (128-byte aligned). Boxes are cut at the edges of the tensor, but the last
// 16 bytes of a row are written as a whole. If threads wrote the box by ordinary stores, each must call
// fence_async_shared(), and a barrier must follow before this call. The calling thread's stores up to
// commit_stores() form a group.
__device__ __forceinline__ void store_box(const TensorMap* map, const void* from_shared, int column, int row,
                                          int plane) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(shared_address(from_shared)), "r"(column), "r"(row), "r"(plane)
      : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// wait_stores() waits until at most `pending` groups have not finished writing. wait_stores_read() waits
// until at most `pending` groups have not finished reading shared memory, which may be overwritten after
// that. A block must wait for the reads before it ends.
template <int pending>
__device__ __forceinline__ void wait_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
template <int pending>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

#else

using simt::arrive;
using simt::arrive_after_copies;
using simt::arrive_expecting;
using simt::Barrier;
using simt::commit_stores;
using simt::fence_barrier_init;
using simt::init_barrier;
using simt::load_box;
using simt::load_bytes;
using simt::store_box;
using simt::TensorMap;
using simt::wait_phase;
using simt::wait_stores;
using simt::wait_stores_read;

__forceinline__ void prefetch_map(const TensorMap*) {}
__forceinline__ void load_box_evict_first(void* to_shared, const TensorMap* map, Barrier* b, int column,
                                          int row, int plane) {
  load_box(to_shared, map, b, column, row, plane);
}
__forceinline__ void load_bytes_evict_first(void* to_shared, const void* from, int bytes, Barrier* b) {
  load_bytes(to_shared, from, bytes, b);
}

#endif

// On the host (tma.cu): makes the TMA descriptor of planes x rows x columns elements of `element_bytes` bytes
// (1, 2, 4 or 8), with boxes of box_planes x box_rows x box_columns elements. Strides are in bytes and
// multiples of 16, in any order, and `data` is 16-byte aligned. Throws std::runtime_error with the driver's
// code.
struct TensorShape {
  const void* data;
  int element_bytes;
  int64_t columns, rows, planes;
  int64_t row_stride_bytes, plane_stride_bytes;
  int box_columns, box_rows;
  Swizzle swizzle = Swizzle::none;  // how the box is swizzled; fixes its row length
  bool to_tf32 = false;             // loads round float32 elements to tf32, as to_tf32() does
  int box_planes = 1;
};
TensorMap make_tensor_map(const TensorShape&);

}  // namespace fastgemm::FASTGEMM_TARGET
