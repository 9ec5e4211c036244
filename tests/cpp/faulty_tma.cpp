// Boxes that the tensor memory accelerator loads and stores. The kernels repeat the code that requests a box,
// because the simulator must name that line.
#include "faulty_ring.h"

namespace fastgemm::simt::faults {
namespace {

template <bool faulty>
void box_without_wait(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 32);
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes);
    load_box(ring.tile[0], &x.map, &ring.full[0], 0, 3, 0);  // fault: box_without_wait
  }
  if (!faulty) wait_phase(&ring.full[0], 0);
  x.out[i] = ring.tile[0][i];  // fault: box_without_wait
}

// A fresh barrier counts as having completed a phase of parity 1, so a wait for parity 1 returns at once.
template <bool faulty>
void wrong_parity(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 32);
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes);
    load_box(ring.tile[0], &x.map, &ring.full[0], 0, 3, 0);  // fault: wrong_parity
  }
  wait_phase(&ring.full[0], faulty ? 1 : 0);
  x.out[i] = ring.tile[0][i];  // fault: wrong_parity
}

// Only the requesting thread waits; it does not tell the others.
template <bool faulty>
void one_thread_waits(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 32);
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes);
    load_box(ring.tile[0], &x.map, &ring.full[0], 0, 3, 0);  // fault: one_thread_waits
    wait_phase(&ring.full[0], 0);
  }
  if (!faulty) __syncthreads();
  x.out[i] = ring.tile[0][i];  // fault: one_thread_waits
}

// Ordinary writes and the box that replaces them use different paths to shared memory.
template <bool faulty>
void load_after_stores(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  ring.tile[0][i] = x.in[i];  // fault: load_after_stores
  const int other = (__syncwarp(), ring.tile[0][31 - i]);
  if (!faulty) fence_async_shared();
  init_ring(ring, 1);
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes);
    load_box(ring.tile[0], &x.map, &ring.full[0], 0, 3, 0);  // fault: load_after_stores
  }
  wait_phase(&ring.full[0], 0);
  x.out[i] = ring.tile[0][i] + other;
}

template <bool faulty>
void store_without_fence(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  ring.tile[0][i] = x.in[i];  // fault: store_without_fence
  if (!faulty) fence_async_shared();
  __syncthreads();
  if (i == 0) {
    store_box(&x.out_map, ring.tile[0], 0, 0, 0);  // fault: store_without_fence
    commit_stores();
    wait_stores_read<0>();
  }
}

// The tile is refilled before the store has read it.
template <bool faulty>
void write_under_store(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  ring.tile[0][i] = x.in[i];
  fence_async_shared();
  __syncthreads();
  if (i == 0) {
    store_box(&x.out_map, ring.tile[0], 0, 0, 0);  // fault: write_under_store
    commit_stores();
    if (!faulty) wait_stores_read<0>();
  }
  __syncthreads();
  ring.tile[0][i] = 0;  // fault: write_under_store
  if (i == 0) wait_stores<0>();
}

template <bool faulty>
void misaligned_box(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 1);
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes);
    load_box(&ring.tile[0][16 * faulty], &x.map, &ring.full[0], 0, 3, 0);  // fault: misaligned_box
  }
  wait_phase(&ring.full[0], 0);
  x.out[i] = ring.tile[0][i];
}

// Space for one and a half rows.
template <bool faulty>
void box_past_shared(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tile);
  FASTGEMM_SHARED Barrier full;
  const int i = int(threadIdx.x);
  if (i == 0) {
    init_barrier(&full, 1), fence_barrier_init();
    arrive_expecting(&full, kBoxBytes);
    load_box(tile + kRow * faulty, &x.map, &full, 0, 3, 0);  // fault: box_past_shared
  }
  __syncthreads();
  wait_phase(&full, 0);
  x.out[i] = tile[i];
}

// The map describes more rows than the matrix has.
template <bool faulty>
void box_past_end(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 1);
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes);
    const TensorMap* map = faulty ? &x.long_map : &x.map;
    load_box(ring.tile[0], map, &ring.full[0], 0, kIn / kRow, 0);  // fault: box_past_end
  }
  wait_phase(&ring.full[0], 0);
  x.out[i] = ring.tile[0][i];
}

template <bool faulty>
void box_of_nothing(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 1);
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes);
    load_box(ring.tile[0], faulty ? &x.out_map : &x.map, &ring.full[0], 0, 0, 0);  // fault: box_of_nothing
  }
  wait_phase(&ring.full[0], 0);
  x.out[i] = ring.tile[0][i];
}

template <bool faulty>
void store_to_input(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  ring.tile[0][i] = x.in[i];
  fence_async_shared();
  __syncthreads();
  if (i == 0) {
    store_box(faulty ? &x.map : &x.out_map, ring.tile[0], 0, 0, 0);  // fault: store_to_input
    commit_stores();
    wait_stores_read<0>();
  }
}

// One element of the box is not written.
template <bool faulty>
void store_of_nothing(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  if (i < 32 - faulty) ring.tile[0][i] = x.in[i];
  fence_async_shared();
  __syncthreads();
  if (i == 0) {
    store_box(&x.out_map, ring.tile[0], 0, 0, 0);  // fault: store_of_nothing
    commit_stores();
    wait_stores_read<0>();
  }
}

// The block ends before the store has read its shared memory.
template <bool faulty>
void store_not_waited_for(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  ring.tile[0][i] = x.in[i];
  fence_async_shared();
  __syncthreads();
  if (i == 0) {
    store_box(&x.out_map, ring.tile[0], 0, 0, 0);  // fault: store_not_waited_for
    commit_stores();
    if (!faulty) wait_stores_read<0>();
  }
}

// The block ends while a box is in flight to its shared memory.
template <bool faulty>
void load_not_waited_for(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 1);
  x.out[i] = x.in[i];
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes);
    load_box(ring.tile[0], &x.map, &ring.full[0], 0, 3, 0);  // fault: load_not_waited_for
  }
  if (!faulty) wait_phase(&ring.full[0], 0);
}

int same(int i) { return input(i); }
int row_3(int i) { return input(3 * kRow + i); }
int row_3_and_reversed(int i) { return input(3 * kRow + i) + input(31 - i); }
int zero(int) { return 0; }

constexpr Case kCases[] = {
    {FASTGEMM_CASE(box_without_wait), "in flight", row_3},
    {FASTGEMM_CASE(wrong_parity), "in flight", row_3},
    {FASTGEMM_CASE(one_thread_waits), "in flight or race", row_3},
    {FASTGEMM_CASE(load_after_stores), "proxy", row_3_and_reversed},
    {FASTGEMM_CASE(store_without_fence), "proxy", same},
    {FASTGEMM_CASE(write_under_store), "in flight", same},
    {FASTGEMM_CASE(misaligned_box), "misaligned", row_3},
    {FASTGEMM_CASE(box_past_shared), "out of bounds", row_3, {.shared_bytes = 3 * kBoxBytes / 2}},
    {FASTGEMM_CASE(box_past_end), "out of bounds", zero},
    {FASTGEMM_CASE(box_of_nothing), "uninitialized", same},
    {FASTGEMM_CASE(store_to_input), "out of bounds", same},
    {FASTGEMM_CASE(store_of_nothing), "uninitialized", same},
    {FASTGEMM_CASE(store_not_waited_for), "in flight", same},
    {FASTGEMM_CASE(load_not_waited_for), "in flight", same},
};

}  // namespace

std::span<const Case> tma_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
