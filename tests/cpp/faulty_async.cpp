// cp.async: copies that are used before they arrive, and stages that are refilled while in use.
#include "cuda/device/async_copy.cuh"
#include "faulty_kernels.h"

namespace fastgemm::simt::faults {
namespace {

template <bool faulty>
void no_wait(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  copy_async<4>(tile + i, x.in + i);  // fault: no_wait
  commit_async_copies();
  if (!faulty) wait_async_copies<0>();
  x.out[i] = tile[i];  // fault: no_wait
}

// Two groups; the second is used after a wait that leaves one group in flight.
template <bool faulty>
void wait_for_wrong_group(Arguments x) {
  FASTGEMM_SHARED int tile[2][32];
  const int i = int(threadIdx.x);
  for (int stage = 0; stage < 2; ++stage) {
    copy_async<4>(&tile[stage][i], x.in + 32 * stage + i);  // fault: wait_for_wrong_group
    commit_async_copies();
  }
  wait_async_copies<faulty>();
  x.out[i] = tile[0][i] + tile[1][i];  // fault: wait_for_wrong_group
}

// A wait does not cover copies that belong to no group.
template <bool faulty>
void no_commit(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  copy_async<4>(tile + i, x.in + i);  // fault: no_commit
  if (!faulty) commit_async_copies();
  wait_async_copies<0>();
  x.out[i] = tile[i];  // fault: no_commit
}

// A wait covers only the thread's own copies. The copies of other threads need a barrier.
template <bool faulty>
void no_barrier_after_wait(Arguments x) {
  FASTGEMM_SHARED int tile[64];
  const int i = int(threadIdx.x);
  copy_async<4>(tile + i, x.in + i);  // fault: no_barrier_after_wait
  commit_async_copies();
  wait_async_copies<0>();
  if (!faulty) __syncthreads();
  x.out[i] = tile[63 - i];  // fault: no_barrier_after_wait
}

// The barrier is before the wait, so copies may arrive after it.
template <bool faulty>
void barrier_before_wait(Arguments x) {
  FASTGEMM_SHARED int tile[64];
  const int i = int(threadIdx.x);
  copy_async<4>(tile + i, x.in + i);  // fault: barrier_before_wait
  commit_async_copies();
  if (faulty) __syncthreads();
  wait_async_copies<0>();
  if (!faulty) __syncthreads();
  x.out[i] = tile[63 - i];  // fault: barrier_before_wait
}

// Two stages in turn. The next tile is requested before all threads have used the tile that it replaces.
template <bool faulty>
void stage_in_use(Arguments x) {
  FASTGEMM_SHARED int tile[2][64];
  const int i = int(threadIdx.x);
  const auto request = [&](int step) {
    if (step < 4) copy_async<4>(&tile[step % 2][i], x.in + 64 * step + i);  // fault: stage_in_use
    commit_async_copies();
  };
  int sum = 0;
  request(0), request(1);
  for (int step = 0; step < 4; ++step) {
    wait_async_copies<1>();
    __syncthreads();
    sum += tile[step % 2][63 - i];  // fault: stage_in_use
    if (!faulty) __syncthreads();
    request(step + 2);
  }
  x.out[i] = sum;
}

// Elements beyond the end are set to zero while the copy of their vector is in flight.
template <bool faulty>
void store_under_copy(Arguments x) {
  alignas(16) FASTGEMM_SHARED int tile[128];
  const int i = int(threadIdx.x);
  copy_async<16>(tile + 4 * i, x.in + 4 * i);  // fault: store_under_copy
  commit_async_copies();
  if (!faulty) wait_async_copies<0>();
  tile[4 * i + 3] = 0;  // fault: store_under_copy
  if (faulty) wait_async_copies<0>();
  x.out[i] = tile[4 * i] + tile[4 * i + 3];
}

template <bool faulty>
void copy_past_end(Arguments x) {
  alignas(16) FASTGEMM_SHARED int tile[128];
  const int i = int(threadIdx.x), first = kIn - 124 + 4 * i;
  const int inside = first < kIn ? 16 : 0;
  copy_async<16>(tile + 4 * i, x.in + first, faulty ? 16 : inside);  // fault: copy_past_end
  commit_async_copies();
  wait_async_copies<0>();
  x.out[i] = tile[4 * i];
}

template <bool faulty>
void copy_past_shared(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tile);
  const int i = int(threadIdx.x);
  copy_async<4>(tile + i + faulty, x.in + i);  // fault: copy_past_shared
  commit_async_copies();
  wait_async_copies<0>();
  if (!faulty) x.out[i] = tile[i];
}

template <bool faulty>
void copy_to_global(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  copy_async<4>(faulty ? x.scratch + i : tile + i, x.in + i);  // fault: copy_to_global
  commit_async_copies();
  wait_async_copies<0>();
  if (!faulty) x.out[i] = tile[i];
}

template <bool faulty>
void copy_from_shared(Arguments x) {
  FASTGEMM_SHARED int tile[64];
  const int i = int(threadIdx.x);
  tile[32 + i] = x.in[i];
  copy_async<4>(tile + i, faulty ? tile + 32 + i : x.in + i);  // fault: copy_from_shared
  commit_async_copies();
  wait_async_copies<0>();
  if (!faulty) x.out[i] = tile[i];
}

template <bool faulty>
void misaligned_copy(Arguments x) {
  alignas(16) FASTGEMM_SHARED int tile[128];
  const int i = int(threadIdx.x);
  copy_async<16>(tile + 4 * i, x.in + 4 * i + 2 * faulty);  // fault: misaligned_copy
  commit_async_copies();
  wait_async_copies<0>();
  x.out[i] = tile[4 * i];
}

template <bool faulty>
void copy_of_nothing(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  if (!faulty) x.scratch[i] = x.in[i];
  copy_async<4>(tile + i, x.scratch + i);  // fault: copy_of_nothing
  commit_async_copies();
  wait_async_copies<0>();
  x.out[i] = tile[i];
}

int same(int i) { return input(i); }
int reversed(int i) { return input(63 - i); }
int two(int i) { return input(i) + input(32 + i); }
int four_reversed(int i) { return input(63 - i) + input(127 - i) + input(191 - i) + input(255 - i); }
int every_fourth(int i) { return input(4 * i); }
int tail(int i) { return i < 31 ? input(kIn - 124 + 4 * i) : 0; }

constexpr Case kCases[] = {
    {FASTGEMM_CASE(no_wait), "in flight", same},
    {FASTGEMM_CASE(wait_for_wrong_group), "in flight", two},
    {FASTGEMM_CASE(no_commit), "in flight", same},
    {FASTGEMM_CASE(no_barrier_after_wait), "race", reversed, {.threads = 64}},
    {FASTGEMM_CASE(barrier_before_wait), "race", reversed, {.threads = 64}},
    {FASTGEMM_CASE(stage_in_use), "race", four_reversed, {.threads = 64}},
    {FASTGEMM_CASE(store_under_copy), "in flight", every_fourth},
    {FASTGEMM_CASE(copy_past_end), "out of bounds", tail},
    {FASTGEMM_CASE(copy_past_shared), "out of bounds", same, {.shared_bytes = 128}},
    {FASTGEMM_CASE(copy_to_global), "out of bounds", same},
    {FASTGEMM_CASE(copy_from_shared), "out of bounds", same},
    {FASTGEMM_CASE(misaligned_copy), "misaligned", every_fourth},
    {FASTGEMM_CASE(copy_of_nothing), "uninitialized", same},
};

}  // namespace

std::span<const Case> async_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
