// Barriers in shared memory (mbarrier): rings whose slots are used too early, wrong counts of bytes and
// arrivals, uninitialized barriers.
#include "faulty_ring.h"

namespace fastgemm::simt::faults {
namespace {

// Warp 0 loads eight rows through a ring of two slots; warps 1 to 3 add them.
enum class Ringing {
  right,
  without_wait,
  for_own_loads,
  a_phase_behind,
  for_one_consumer,
  for_two_of_three,
  silent_consumers
};

template <Ringing how>
void ring(Arguments x) {
  constexpr bool waits = how != Ringing::without_wait && how != Ringing::for_own_loads;
  constexpr bool behind = how == Ringing::a_phase_behind, for_one = how == Ringing::for_one_consumer;
  constexpr int consumers = for_one ? 1 : how == Ringing::for_two_of_three ? 2 : 3;
  FASTGEMM_SHARED Ring ring;
  const int i = int(threadIdx.x), warp = i / 32, lane = i % 32;
  init_ring(ring, consumers);
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
      if (how != Ringing::silent_consumers && lane == 0 && (warp == 1 || !for_one)) arrive(&ring.empty[slot]);
    }
  }
  if (warp > 0) x.out[i - 32] = sum;
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

// The previous block left a barrier in the same place.
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

// Threads use the barrier before its initialization is ordered before them.
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

int same(int i) { return input(i); }
int row_3(int i) { return input(3 * kRow + i); }
int sum_of_rows(int i) {
  int sum = 0;
  for (int row = 0; row < kIn / kRow; ++row) sum += input(row * kRow + i % 32);
  return sum;
}

constexpr Shape kRingShape{.threads = 128, .results = 96};
constexpr auto kRight = ring<Ringing::right>;
constexpr Case kCases[] = {
    {"ring without wait", ring<Ringing::without_wait>, kRight, "arrivals", sum_of_rows, kRingShape},
    {"ring for own loads", ring<Ringing::for_own_loads>, kRight, "race", sum_of_rows, kRingShape},
    {"ring a phase behind", ring<Ringing::a_phase_behind>, kRight, "arrivals", sum_of_rows, kRingShape},
    {"ring for one consumer", ring<Ringing::for_one_consumer>, kRight, "race", sum_of_rows, kRingShape},
    {"ring for two of three", ring<Ringing::for_two_of_three>, kRight, "race", sum_of_rows, kRingShape},
    {"ring with silent consumers", ring<Ringing::silent_consumers>, kRight, "deadlock", sum_of_rows,
     kRingShape},
    {FASTGEMM_CASE(too_many_bytes_expected), "deadlock", row_3},
    {FASTGEMM_CASE(too_few_bytes_expected), "deadlock", row_3},
    {FASTGEMM_CASE(nobody_arrives), "deadlock", same},
    {FASTGEMM_CASE(more_arrivals_than_threads), "deadlock", same},
    {FASTGEMM_CASE(barrier_of_block_before), "uninitialized", same, {.grid = 2}},
    {FASTGEMM_CASE(barrier_nobody_initialized), "uninitialized", same},
    {FASTGEMM_CASE(barrier_used_at_once), "race or uninitialized", same, {.threads = 64}},
};

}  // namespace

std::span<const Case> mbarrier_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
