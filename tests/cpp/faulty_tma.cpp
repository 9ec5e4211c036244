// Barriers in shared memory (mbarrier), and boxes that the tensor memory accelerator loads and stores.
#include "faulty_kernels.h"

namespace fastgemm::simt::faults {
namespace {

constexpr int kBoxBytes = kRow * int(sizeof(int));

// A row of `in` for each step, loaded by thread 0 of a block of one warp: full[0] and tile[0] alone.
struct alignas(128) Ring {
  int tile[2][kRow];
  Barrier full[2], empty[2];
};

void init_ring(Ring& ring, int consumers) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) init_barrier(&ring.full[s], 1), init_barrier(&ring.empty[s], consumers);
    fence_barrier_init();
  }
  __syncthreads();
}

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

// A fresh barrier counts as having completed a phase of parity 1: a wait for that one does not wait.
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

// The thread that asked waits, and does not tell the others.
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

// Warp 0 loads eight rows through a ring of two slots, warps 1 and 2 add them up.
enum class Ringing { right, without_wait, for_own_loads, a_phase_behind, for_one_consumer, silent_consumers };

template <Ringing how>
void ring(Arguments x) {
  constexpr bool waits = how != Ringing::without_wait && how != Ringing::for_own_loads;
  constexpr bool behind = how == Ringing::a_phase_behind, for_one = how == Ringing::for_one_consumer;
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x), warp = i / 32, lane = i % 32;
  init_ring(ring, for_one ? 1 : 2);
  int sum = 0;
  for (int step = 0; step < kIn / kRow; ++step) {
    const int slot = step % 2, phase = step / 2 % 2;
    if (i == 0) {
      if (waits && step >= 2 * behind) wait_phase(&ring.empty[slot], phase ^ !behind);  // fault: ring
      arrive_expecting(&ring.full[slot], kBoxBytes);                                    // fault: ring
      load_box(ring.tile[slot], &x.map, &ring.full[slot], 0, step, 0);                  // fault: ring
      if (how == Ringing::for_own_loads) wait_phase(&ring.full[slot], phase);
    } else if (warp > 0) {
      wait_phase(&ring.full[slot], phase);  // fault: ring
      sum += ring.tile[slot][lane];         // fault: ring
      __syncwarp();
      if (how != Ringing::silent_consumers && lane == 0 && warp <= 2 - for_one) arrive(&ring.empty[slot]);
    }
  }
  if (warp > 0) x.out[i - 32] = sum;
}

// Ordinary writes, and the box that comes in their place, go different ways to shared memory.
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

// The tile is filled again before the store has read it.
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
void too_many_bytes_expected(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 1);
  if (i == 0) {
    arrive_expecting(&ring.full[0], kBoxBytes + 4 * faulty);
    load_box(ring.tile[0], &x.map, &ring.full[0], 0, 3, 0);
  }
  wait_phase(&ring.full[0], 0);  // fault: too_many_bytes_expected
  x.out[i] = ring.tile[0][i];
}

template <bool faulty>
void too_few_bytes_expected(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 1);
  if (i == 0) {
    arrive_expecting(&ring.full[0], faulty ? kBoxBytes / 2 : kBoxBytes);
    load_box(ring.tile[0], &x.map, &ring.full[0], 0, 3, 0);
  }
  wait_phase(&ring.full[0], 0);  // fault: too_few_bytes_expected
  x.out[i] = ring.tile[0][i];
}

template <bool faulty>
void nobody_arrives(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  init_ring(ring, 1);
  if (i == 0 && !faulty) arrive(&ring.full[0]);
  wait_phase(&ring.full[0], 0);  // fault: nobody_arrives
  x.out[i] = x.in[i];
}

template <bool faulty>
void more_arrivals_than_threads(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  if (i == 0) init_barrier(&ring.full[0], 33 - !faulty);
  __syncthreads();
  arrive(&ring.full[0]);
  wait_phase(&ring.full[0], 0);  // fault: more_arrivals_than_threads
  x.out[i] = x.in[i];
}

// The block before has left a barrier in the same place.
template <bool faulty>
void barrier_of_block_before(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  if (i == 0 && (!faulty || blockIdx.x == 0)) init_barrier(&ring.full[0], 32);
  __syncthreads();
  arrive(&ring.full[0]);  // fault: barrier_of_block_before
  wait_phase(&ring.full[0], 0);
  x.out[i] = x.in[i];
}

template <bool faulty>
void barrier_nobody_initialized(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  if (i == 0 && !faulty) init_barrier(&ring.full[0], 32);
  __syncthreads();
  arrive(&ring.full[0]);  // fault: barrier_nobody_initialized
  wait_phase(&ring.full[0], 0);
  x.out[i] = x.in[i];
}

// Initialized, and used by threads that do not know yet.
template <bool faulty>
void barrier_used_at_once(Arguments x) {
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x);
  if (i == 0) init_barrier(&ring.full[0], 64);  // fault: barrier_used_at_once
  if (!faulty) __syncthreads();
  arrive(&ring.full[0]);  // fault: barrier_used_at_once
  if (faulty) __syncthreads();
  wait_phase(&ring.full[0], 0);
  x.out[i] = x.in[i];
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

// Room for one row and a half.
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

// The map says that there are more rows than there are.
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

// The block ends, and what the store is to read with it.
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

// The block ends while a box is on its way into its shared memory.
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
int sum_of_rows(int i) {
  int sum = 0;
  for (int row = 0; row < kIn / kRow; ++row) sum += input(row * kRow + i % 32);
  return sum;
}

constexpr Shape kRingShape{.threads = 96, .results = 64};
constexpr auto kRight = ring<Ringing::right>;
constexpr Case kCases[] = {
    {FASTGEMM_CASE(box_without_wait), "in flight", row_3},
    {FASTGEMM_CASE(wrong_parity), "in flight", row_3},
    {FASTGEMM_CASE(one_thread_waits), "in flight", row_3},
    {"ring without wait", ring<Ringing::without_wait>, kRight, "arrivals", sum_of_rows, kRingShape},
    {"ring for own loads", ring<Ringing::for_own_loads>, kRight, "race", sum_of_rows, kRingShape},
    {"ring a phase behind", ring<Ringing::a_phase_behind>, kRight, "arrivals", sum_of_rows, kRingShape},
    {"ring for one consumer", ring<Ringing::for_one_consumer>, kRight, "race", sum_of_rows, kRingShape},
    {"ring with silent consumers", ring<Ringing::silent_consumers>, kRight, "deadlock", sum_of_rows,
     kRingShape},
    {FASTGEMM_CASE(load_after_stores), "proxy", row_3_and_reversed},
    {FASTGEMM_CASE(store_without_fence), "proxy", same},
    {FASTGEMM_CASE(write_under_store), "in flight", same},
    {FASTGEMM_CASE(too_many_bytes_expected), "deadlock", row_3},
    {FASTGEMM_CASE(too_few_bytes_expected), "deadlock", row_3},
    {FASTGEMM_CASE(nobody_arrives), "deadlock", same},
    {FASTGEMM_CASE(more_arrivals_than_threads), "deadlock", same},
    {FASTGEMM_CASE(barrier_of_block_before), "uninitialized", same, {.grid = 2}},
    {FASTGEMM_CASE(barrier_nobody_initialized), "uninitialized", same},
    {FASTGEMM_CASE(barrier_used_at_once), "race", same, {.threads = 64}},
    {FASTGEMM_CASE(misaligned_box), "misaligned", row_3},
    {FASTGEMM_CASE(box_past_shared), "out of bounds", row_3, {.shared_bytes = 3 * kBoxBytes / 2}},
    {FASTGEMM_CASE(box_past_end), "out of bounds", zero},
    {FASTGEMM_CASE(box_of_nothing), "uninitialized", same},
    {FASTGEMM_CASE(store_not_waited_for), "in flight", same},
    {FASTGEMM_CASE(load_not_waited_for), "in flight", same},
};

}  // namespace

std::span<const Case> tma_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
