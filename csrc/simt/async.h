// Asynchronous copies on the host: cp.async, and boxes moved by the tensor memory accelerator (TMA). After
// the request, all bits of the destination read as set. The data arrives as late as the rules allow, so that
// a missing or too short wait gives wrong results.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastgemm::simt {

// cp.async; each thread has groups of its own.
void copy_async_bytes(void* to_shared, const void* from, int bytes, int valid);
template <int bytes>
void copy_async(void* to_shared, const void* from, int valid = bytes) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  copy_async_bytes(to_shared, from, bytes, valid);
}
void commit_async_copies();
void wait_pending_copies(int pending);
template <int pending>
void wait_async_copies() {
  wait_pending_copies(pending);
}
void forget_copies();  // those of the previous block

// An mbarrier: 8 bytes and trivial, as in shared memory. A phase ends when all threads have arrived and all
// announced bytes have landed.
struct alignas(8) Barrier {
  uint32_t magic : 8, phase : 1, arrivals : 11, missing : 11;
  int32_t bytes;
};
static_assert(sizeof(Barrier) == 8);

void init_barrier(Barrier*, int arrivals);
inline void fence_barrier_init() {}
void arrive(Barrier*);
void arrive_after_copies(Barrier*);          // the thread's copies land at once
void arrive_remote(Barrier* own, int rank);  // at the same barrier of another block of the cluster
void arrive_expecting(Barrier*, int bytes);
// Stores 16 bytes to the same place in another block of the cluster. They count on its barrier.
void store_remote(void* to_shared, const void* from, Barrier* own, int rank);
void wait_phase(Barrier*, uint32_t parity);

// The part of the shape that make_tensor_map(const TensorShape&) keeps (cuda/device/tma.cuh).
struct TensorMap {
  const std::byte* data;
  int element_bytes;
  int64_t columns, rows, planes;
  int64_t row_stride_bytes, plane_stride_bytes;
  int box_columns, box_rows;
  int swizzle_bytes;  // also the length of a row of the box; 0: not swizzled
  bool to_tf32;
  int box_planes = 1;
};

void load_box(void* to_shared, const TensorMap*, Barrier*, int column, int row, int plane);
// Loads to the same place in each block of the cluster that the mask names. The barrier of each block counts
// its own bytes.
void load_box_multicast(void* to_shared, const TensorMap*, Barrier*, int column, int row, int plane,
                        uint32_t cta_mask);
// A box that is one row of bytes.
inline __attribute__((always_inline)) void load_bytes(void* to_shared, const void* from, int bytes,
                                                      Barrier* barrier) {
  const TensorMap row{static_cast<const std::byte*>(from), 1, bytes, 1, 1, bytes, bytes, bytes, 1, 0, false};
  load_box(to_shared, &row, barrier, 0, 0, 0);
}

// Stores; each thread has groups of its own. A store reads shared memory when the thread waits for reads. It
// writes global memory when the thread waits for complete stores, or at the end of the block.
void store_box(const TensorMap*, const void* from_shared, int column, int row, int plane);
void commit_stores();
void wait_pending_stores(int pending);
void wait_pending_stores_read(int pending);
template <int pending>
void wait_stores() {
  wait_pending_stores(pending);
}
template <int pending>
void wait_stores_read() {
  wait_pending_stores_read(pending);
}
void forget_stores();  // those of the previous block
void end_stores();

}  // namespace fastgemm::simt
