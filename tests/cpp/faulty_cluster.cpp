// Blocks of a cluster that access each other's shared memory without synchronization.
#include "cuda/device/cluster.cuh"
#include "cuda/device/vector.cuh"
#include "faulty_kernels.h"

namespace fastgemm::simt::faults {
namespace {

constexpr int kThreads = 128, kBoxBytes = kRow * int(sizeof(int));
constexpr Shape kTwoBlocks{kThreads, 4096, dim3(2), 2 * kThreads, 2};

int place() { return int(blockIdx.x) * kThreads + int(threadIdx.x); }

// Each block reads what the other has written.
template <bool faulty>
void read_without_barrier(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, values);
  const int i = int(threadIdx.x);
  values[i] = x.in[place()];  // fault: read_without_barrier
  if (faulty)
    __syncthreads();
  else
    cluster_sync();
  x.out[place()] = map_shared_rank(values, cluster_rank() ^ 1)[i];  // fault: read_without_barrier
  cluster_sync();
}

// A block's memory is released when the block ends, even if another block still reads it.
template <bool faulty>
void end_without_barrier(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, values);
  const int i = int(threadIdx.x);
  values[i] = x.in[place()];
  cluster_sync();
  x.out[place()] = map_shared_rank(values, cluster_rank() ^ 1)[i];  // fault: end_without_barrier
  if (!faulty) cluster_sync();
}

struct Ring {
  Barrier full, empty;
  alignas(128) int tile[kRow];
};

void init(Ring& ring, int arrivals_of_empty) {
  if (threadIdx.x == 0) {
    init_barrier(&ring.full, 1);
    init_barrier(&ring.empty, arrivals_of_empty);
    fence_barrier_init();
  }
}

// A block arrives at the other block's barrier, which may not be initialized yet.
template <bool faulty>
void arrive_without_barrier(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(Ring, ring);
  if (threadIdx.x == 0) init_barrier(&ring->full, 1);  // fault: arrive_without_barrier
  fence_barrier_init();
  if (faulty)
    __syncthreads();
  else
    cluster_sync();
  if (threadIdx.x == 0) arrive_remote(&ring->full, cluster_rank() ^ 1);  // fault: arrive_without_barrier
  wait_cluster_phase(&ring->full, 0);                                    // fault: arrive_without_barrier
  x.out[place()] = x.in[place()];
  cluster_sync();
}

// One block loads a box for both. The other block reads it without waiting for its own barrier.
template <bool faulty>
void multicast_without_wait(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(Ring, ring);
  init(*ring, 1);
  if (threadIdx.x == 0) arrive_expecting(&ring->full, kBoxBytes);
  cluster_sync();
  if (threadIdx.x == 0 && cluster_rank() == 0)
    load_box_multicast(ring->tile, &x.map, &ring->full, 0, 3, 0, 3);  // fault: multicast_without_wait
  if (faulty && cluster_rank() == 1)
    __syncthreads();
  else
    wait_phase(&ring->full, 0);
  x.out[place()] = ring->tile[threadIdx.x % kRow];  // fault: multicast_without_wait
  wait_phase(&ring->full, 0);
  cluster_sync();
}

// The loading block knows that it has read the previous box itself, but not whether the other block has.
template <bool faulty>
void multicast_over_readers(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(Ring, ring);
  init(*ring, faulty ? kThreads : 2 * kThreads);
  cluster_sync();
  int sum = 0;
  for (int turn = 0; turn < 2; ++turn) {
    if (threadIdx.x == 0) {
      arrive_expecting(&ring->full, kBoxBytes);
    }
    if (cluster_rank() == 0 && threadIdx.x == 0) {
      if (turn > 0) wait_cluster_phase(&ring->empty, 0);
      load_box_multicast(ring->tile, &x.map, &ring->full, 0, turn, 0, 3);  // fault: multicast_over_readers
    }
    wait_phase(&ring->full, uint32_t(turn));
    sum += ring->tile[threadIdx.x % kRow];  // fault: multicast_over_readers
    if (!faulty || cluster_rank() == 0) arrive_remote(&ring->empty, 0);
    if (turn == 0) __syncthreads();  // before the next phase is announced
  }
  x.out[place()] = sum;
  cluster_sync();
}

template <bool faulty>
void arrive_twice(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, values);
  values[threadIdx.x] = x.in[place()];
  cluster_arrive();
  if (faulty) cluster_arrive();  // fault: arrive_twice
  cluster_wait();
  x.out[place()] = map_shared_rank(values, cluster_rank() ^ 1)[threadIdx.x];
  cluster_sync();
}

// All threads arrive except for some of block 1, which wait for something that the others do later.
template <bool faulty>
void some_arrive(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, values);
  values[threadIdx.x] = x.in[place()];
  if (!faulty || cluster_rank() == 0 || threadIdx.x < 64) {
    cluster_sync();  // fault: some_arrive
  }
  __syncthreads();  // fault: some_arrive
  x.out[place()] = map_shared_rank(values, cluster_rank() ^ 1)[threadIdx.x];
  cluster_sync();  // fault: some_arrive
}

// Block 0 has ended, and its memory is gone when block 1 reads it.
template <bool faulty>
void read_after_end(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, values);
  const int i = int(threadIdx.x);
  values[i] = x.in[place()];
  cluster_sync();
  if (cluster_rank() == 0) {
    x.out[place()] = input(kThreads + i);
    if (!faulty) cluster_sync();
    return;
  }
  for (int turn = 0; turn < 4; ++turn) spin_wait();
  x.out[place()] = map_shared_rank(values, 0)[i];  // fault: read_after_end
  if (!faulty) cluster_sync();
}

// Block 0 loads a box for block 1 only, which does not wait for it.
template <bool faulty>
void multicast_to_ended(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(Ring, ring);
  init(*ring, 1);
  if (threadIdx.x == 0 && cluster_rank() == 1) arrive_expecting(&ring->full, kBoxBytes);
  cluster_sync();
  if (threadIdx.x == 0 && cluster_rank() == 0)
    load_box_multicast(ring->tile, &x.map, &ring->full, 0, 3, 0, 2);  // fault: multicast_to_ended
  if (!faulty && cluster_rank() == 1) wait_phase(&ring->full, 0);
  x.out[place()] = x.in[place()];
}

struct Sent {
  Barrier here;
  alignas(16) int values[kThreads];
};

// Each block sends its values to the other one, which reads them before they have arrived.
template <bool faulty>
void send_without_wait(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(Sent, sent);
  const int i = int(threadIdx.x);
  if (i == 0) {
    init_barrier(&sent->here, 1);
    fence_barrier_init();
    arrive_expecting(&sent->here, int(sizeof(sent->values)));
  }
  cluster_sync();
  if (i % 4 == 0) {
    const int* const from = x.in + place();
    const Vector<int, 4> four{{from[0], from[1], from[2], from[3]}};
    store_async_remote(sent->values + i, four, &sent->here, cluster_rank() ^ 1);  // fault: send_without_wait
  }
  if (!faulty) wait_phase(&sent->here, 0);
  x.out[place()] = sent->values[i];  // fault: send_without_wait
  cluster_sync();
}

// All blocks of a simulated cluster share one copy of static shared memory.
template <bool faulty>
void static_memory(Arguments x) {
  [[maybe_unused]] FASTGEMM_SHARED int static_values[kThreads];
  FASTGEMM_DYNAMIC_SHARED(int, values);
  if (faulty)
    static_values[threadIdx.x] = x.in[place()];  // fault: static_memory
  else
    values[threadIdx.x] = x.in[place()];
  cluster_sync();
  x.out[place()] = map_shared_rank(values, cluster_rank() ^ 1)[threadIdx.x];
  cluster_sync();
}

constexpr int of_other(int i) { return input((i + kThreads) % (2 * kThreads)); }

const Case kCases[] = {
    {FASTGEMM_CASE(read_without_barrier), "race", of_other, kTwoBlocks},
    {FASTGEMM_CASE(end_without_barrier), "ended block", of_other, kTwoBlocks},
    {FASTGEMM_CASE(arrive_without_barrier), "race or uninitialized", input, kTwoBlocks},
    {FASTGEMM_CASE(multicast_without_wait), "in flight", [](int i) { return input(3 * kRow + i % kRow); },
     kTwoBlocks},
    {FASTGEMM_CASE(multicast_over_readers), "race",
     [](int i) { return input(i % kRow) + input(kRow + i % kRow); }, kTwoBlocks},
    {FASTGEMM_CASE(arrive_twice), "arrivals", of_other, kTwoBlocks},
    {FASTGEMM_CASE(some_arrive), "deadlock", of_other, kTwoBlocks},
    {FASTGEMM_CASE(read_after_end), "ended block", of_other, kTwoBlocks},
    {FASTGEMM_CASE(multicast_to_ended), "in flight", input, kTwoBlocks},
    {FASTGEMM_CASE(send_without_wait), "race", of_other, kTwoBlocks},
    {FASTGEMM_CASE(static_memory), "static in a cluster", of_other, kTwoBlocks},
};

}  // namespace

std::span<const Case> cluster_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
