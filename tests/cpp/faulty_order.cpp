// Unordered accesses of threads to the same shared memory, and barriers that not all threads reach.
#include "cuda/device/numeric.cuh"
#include "faulty_kernels.h"

namespace fastgemm::simt::faults {
namespace {

// Two warps; each reads what the other wrote.
template <bool faulty>
void read_after_write(Arguments x) {
  FASTGEMM_SHARED int tile[64];
  const int i = int(threadIdx.x);
  tile[i] = x.in[i];  // fault: read_after_write
  if (!faulty) __syncthreads();
  x.out[i] = tile[63 - i];  // fault: read_after_write
}

// A tile is used twice. It is refilled before all threads have read the first values.
template <bool faulty>
void write_after_read(Arguments x) {
  FASTGEMM_SHARED int tile[64];
  const int i = int(threadIdx.x);
  int sum = 0;
  for (int round = 0; round < 2; ++round) {
    tile[i] = x.in[64 * round + i];  // fault: write_after_read
    __syncthreads();
    sum += tile[63 - i];  // fault: write_after_read
    if (!faulty) __syncthreads();
  }
  x.out[i] = sum;
}

// The value of the second warp should remain.
template <bool faulty>
void write_after_write(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  if (i < 32) tile[i] = 0;  // fault: write_after_write
  if (!faulty) __syncthreads();
  if (i >= 32) tile[i - 32] = x.in[i - 32];  // fault: write_after_write
  __syncthreads();
  if (i < 32) x.out[i] = tile[i];
}

// Since Volta the lanes of a warp do not run in lock-step.
template <bool faulty>
void inside_a_warp(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  tile[i] = x.in[i];  // fault: inside_a_warp
  if (!faulty) __syncwarp();
  x.out[i] = tile[31 - i];  // fault: inside_a_warp
}

// A shuffle synchronizes lanes, but does not order their memory accesses.
template <bool faulty>
void shuffle_between(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  tile[i] = x.in[i];  // fault: shuffle_between
  const int first = __shfl_sync(runtime::kFullWarp, x.in[i], 0);
  if (!faulty) __syncwarp();
  x.out[i] = tile[31 - i] + first;  // fault: shuffle_between
}

// Each half of the warp waits only for itself.
template <bool faulty>
void halves_of_a_warp(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x);
  tile[i] = x.in[i];  // fault: halves_of_a_warp
  __syncwarp(!faulty ? runtime::kFullWarp : i < 16 ? 0x0000ffffu : 0xffff0000u);
  x.out[i] = tile[31 - i];  // fault: halves_of_a_warp
}

// A barrier for the warp, although the whole block shares the memory.
template <bool faulty>
void warp_barrier_for_block(Arguments x) {
  FASTGEMM_SHARED int tile[64];
  const int i = int(threadIdx.x);
  tile[i] = x.in[i];  // fault: warp_barrier_for_block
  if (faulty)
    __syncwarp();
  else
    __syncthreads();
  x.out[i] = tile[63 - i];  // fault: warp_barrier_for_block
}

// 128 threads write. The 64 threads that read wait only for each other.
template <bool faulty>
void barrier_of_half(Arguments x) {
  FASTGEMM_SHARED int tile[128];
  const int i = int(threadIdx.x);
  tile[i] = x.in[i];  // fault: barrier_of_half
  if (!faulty)
    named_barrier(1, 128);
  else if (i < 64)
    named_barrier(1, 64);
  if (i < 64) x.out[i] = tile[i + 64];  // fault: barrier_of_half
}

// Each half waits at a barrier of 64 threads, but these are two different barriers.
template <bool faulty>
void two_named_barriers(Arguments x) {
  FASTGEMM_SHARED int tile[128];
  const int i = int(threadIdx.x);
  tile[i] = x.in[i];  // fault: two_named_barriers
  if (faulty)
    named_barrier(i < 64 ? 1 : 2, 64);
  else
    named_barrier(1, 128);
  x.out[i] = tile[127 - i];  // fault: two_named_barriers
}

// Elements smaller than a bank: one of the four elements of a word is read too early.
template <bool faulty>
void bytes_of_a_word(Arguments x) {
  FASTGEMM_SHARED int8_t tile[128];
  const int i = int(threadIdx.x);
  if (i < 32)
    for (int byte = 3; byte >= 0; --byte)
      tile[4 * i + byte] = int8_t(x.in[i] >> 8 * byte);  // fault: bytes_of_a_word
  if (!faulty) __syncthreads();
  if (i >= 32) x.out[i - 32] = tile[4 * (i - 32)];  // fault: bytes_of_a_word
}

// The same, but another thread writes each byte.
template <bool faulty>
void bytes_of_threads(Arguments x) {
  FASTGEMM_SHARED int8_t tile[32];
  const int i = int(threadIdx.x);
  if (i < 32) tile[i] = int8_t(x.in[i]);  // fault: bytes_of_threads
  if (!faulty) __syncthreads();
  if (i >= 32 && i % 4 == 1) x.out[i / 4 - 8] = tile[i - 32];  // fault: bytes_of_threads
}

// Four warps read a tile. The warp that refills it waits for only three of them.
template <bool faulty>
void forgotten_reader(Arguments x) {
  FASTGEMM_SHARED int tile[32];
  const int i = int(threadIdx.x), warp = i / 32, lane = i % 32, forgotten = 1;
  if (warp == 0) tile[lane] = x.in[lane];
  __syncthreads();
  const int first = tile[lane];  // fault: forgotten_reader
  if (!faulty)
    named_barrier(1, 128);
  else if (warp != forgotten)
    named_barrier(1, 96);
  if (warp == 0) tile[lane] = x.in[32 + lane];  // fault: forgotten_reader
  __syncthreads();
  x.out[i] = first + tile[lane];
}

// An early return, which is correct only in kernels without barriers.
template <bool faulty>
void early_return(Arguments x) {
  FASTGEMM_SHARED int tile[64];
  const int i = int(threadIdx.x);
  if (faulty && i >= 40) return;
  tile[i] = x.in[i];
  __syncthreads();  // fault: early_return
  if (i < 40) x.out[i] = tile[39 - i];
}

// All threads reach a barrier, but not the same one.
template <bool faulty>
void barrier_in_branches(Arguments x) {
  FASTGEMM_SHARED int tile[64];
  const int i = int(threadIdx.x);
  if (i < 32) {
    tile[i] = x.in[i];
    if (faulty) __syncthreads();  // fault: barrier_in_branches
  } else {
    tile[i] = x.in[i] + 1;
    if (faulty) __syncthreads();  // fault: barrier_in_branches
  }
  if (!faulty) __syncthreads();
  x.out[i] = tile[63 - i];
}

template <bool faulty>
void too_few_at_barrier(Arguments x) {
  const int i = int(threadIdx.x);
  if (i < 64 || !faulty) named_barrier(3, 96);  // fault: too_few_at_barrier
  x.out[i] = x.in[i];
}

// One warp waits at the block's barrier, the other at a named barrier of the whole block.
template <bool faulty>
void crossed_barriers(Arguments x) {
  const int i = int(threadIdx.x);
  if (!faulty || i < 32) __syncthreads();  // fault: crossed_barriers
  named_barrier(1, 64);                    // fault: crossed_barriers
  if (faulty && i >= 32) __syncthreads();
  x.out[i] = x.in[i];
}

// Four warpgroups claim more registers than a multiprocessor has, so that a GPU would wait for ever.
template <bool faulty>
void too_many_registers(Arguments x) {
  const int i = int(threadIdx.x);
  if (faulty)
    claim_registers<136>();  // fault: too_many_registers
  else
    claim_registers<128>();
  if (i < 64) x.out[i] = x.in[i];
}

int same(int i) { return input(i); }
int reversed_32(int i) { return input(31 - i); }
int reversed_40(int i) { return input(39 - i); }
int reversed_64(int i) { return input(63 - i); }
int reversed_128(int i) { return input(127 - i); }
int two_rounds(int i) { return input(63 - i) + input(127 - i); }
int with_first(int i) { return input(31 - i) + input(0); }
int upper_half(int i) { return input(i + 64); }
int low_byte(int i) { return int8_t(input(i)); }
int every_fourth(int i) { return int8_t(input(4 * i + 1)); }
int two_tiles(int i) { return input(i % 32) + input(32 + i % 32); }
int one_more_above(int i) { return input(63 - i) + (i < 32); }

constexpr Case kCases[] = {
    {FASTGEMM_CASE(read_after_write), "race", reversed_64, {.threads = 64}},
    {FASTGEMM_CASE(write_after_read), "race", two_rounds, {.threads = 64}},
    {FASTGEMM_CASE(write_after_write), "race", same, {.threads = 64, .results = 32}},
    {FASTGEMM_CASE(inside_a_warp), "race", reversed_32},
    {FASTGEMM_CASE(shuffle_between), "race", with_first},
    {FASTGEMM_CASE(halves_of_a_warp), "race", reversed_32},
    {FASTGEMM_CASE(warp_barrier_for_block), "race", reversed_64, {.threads = 64}},
    {FASTGEMM_CASE(barrier_of_half), "race", upper_half, {.threads = 128, .results = 64}},
    {FASTGEMM_CASE(two_named_barriers), "race", reversed_128, {.threads = 128}},
    {FASTGEMM_CASE(bytes_of_a_word), "race", low_byte, {.threads = 64, .results = 32}},
    {FASTGEMM_CASE(bytes_of_threads), "race", every_fourth, {.threads = 64, .results = 8}},
    {FASTGEMM_CASE(forgotten_reader), "race", two_tiles, {.threads = 128}},
    {FASTGEMM_CASE(early_return), "barrier divergence", reversed_40, {.threads = 64, .results = 40}},
    {FASTGEMM_CASE(barrier_in_branches), "barrier divergence", one_more_above, {.threads = 64}},
    {FASTGEMM_CASE(too_few_at_barrier), "deadlock", same, {.threads = 96}},
    {FASTGEMM_CASE(crossed_barriers), "deadlock", same, {.threads = 64}},
    {FASTGEMM_CASE(too_many_registers), "registers", same, {.threads = 512, .results = 64}},
};

}  // namespace

std::span<const Case> order_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
