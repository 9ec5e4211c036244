// A ring of stages in shared memory, which a producer warp fills and consumer warps read. Contract: the
// producer waits for a stage's mbarrier `empty`, and its copies arrive at `full`; every consumer warp waits
// for `full` and arrives at `empty`.
//
//             +---------+---------+---------+---------+
//   producer  | stage 0 | stage 1 | stage 2 | stage 3 |  back to stage 0, the other phase
//   fills ->  |  full   |  full   | filling |  empty  |  <- consumers have released it
//             +---------+---------+---------+---------+
//                  ^ consumers multiply
#pragma once

#include "cuda/device/tma.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The position of a warp in the ring. The phase of a stage's barriers flips each time around the ring. A
// producer begins with phase 1, in which a new barrier does not wait, because all stages are empty.
template <int STAGES>
struct RingPosition {
  int stage = 0;
  uint32_t phase;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
};

template <int STAGES>
struct RingBarriers {
  using Position = RingPosition<STAGES>;
  Barrier full[STAGES], empty[STAGES];

  // One thread calls this; fence_barrier_init() and a barrier of the block follow.
  __device__ __forceinline__ void init(int producers, int consumer_warps) {
    for (int i = 0; i < STAGES; ++i) {
      init_barrier(&full[i], producers);
      init_barrier(&empty[i], consumer_warps);
    }
  }

  // Fills the next stage: load(stage, barrier) issues copies of `bytes` in all, in the elected thread only.
  template <class Load>
  __device__ __forceinline__ void fill(Position& at, bool elected, int bytes, Load&& load) {
    wait_phase(&empty[at.stage], at.phase);
    if (elected) {
      arrive_expecting(&full[at.stage], bytes);
      load(at.stage, &full[at.stage]);
    }
    at.advance();
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
