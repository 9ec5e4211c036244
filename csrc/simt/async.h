// Asynchronous copies on the host: cp.async, and boxes that the tensor memory accelerator moves. Where data
// is to land reads as all bits set from the moment of the request, and the data comes as late as the rules
// allow, so that a wait that is missing or too short shows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastgemm::simt {

// cp.async, in groups of the calling thread.
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
void forget_copies();  // of the block before

// An mbarrier: 8 bytes, trivial, as in shared memory. A phase ends when all arrivals have come and the bytes
// that were announced have landed.
struct alignas(8) Barrier {
  uint32_t magic : 8, phase : 1, arrivals : 11, missing : 11;
  int32_t bytes;
};
static_assert(sizeof(Barrier) == 8);

void init_barrier(Barrier*, int arrivals);
inline void fence_barrier_init() {}
void arrive(Barrier*);
void arrive_remote(Barrier* own, int rank);  // at that in the same place of another block of the cluster
void arrive_expecting(Barrier*, int bytes);
void wait_phase(Barrier*, uint32_t parity);

// What make_tensor_map(const TensorShape&) keeps of the shape (cuda/device/tma.cuh).
struct TensorMap {
  const std::byte* data;
  int element_bytes;
  int64_t columns, rows, planes;
  int64_t row_stride_bytes, plane_stride_bytes;
  int box_columns, box_rows;
  int swizzle_bytes;  // rows of the box are as long; 0: not swizzled
  bool to_tf32;
};

void load_box(void* to_shared, const TensorMap*, Barrier*, int column, int row, int plane);
// To the same place in each block of the cluster that the mask names, each block's barrier counting its
// bytes.
void load_box_multicast(void* to_shared, const TensorMap*, Barrier*, int column, int row, int plane,
                        uint32_t cta_mask);
// A box that is one row of bytes.
inline __attribute__((always_inline)) void load_bytes(void* to_shared, const void* from, int bytes,
                                                      Barrier* barrier) {
  const TensorMap row{static_cast<const std::byte*>(from), 1, bytes, 1, 1, bytes, bytes, bytes, 1, 0, false};
  load_box(to_shared, &row, barrier, 0, 0, 0);
}

// Stores in groups of the calling thread: they read shared memory when the thread waits for that, and write
// global memory when it waits for all, or at the end of the block.
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
void forget_stores();  // of the block before
void end_stores();

}  // namespace fastgemm::simt
