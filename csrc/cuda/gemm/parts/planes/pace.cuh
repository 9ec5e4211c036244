// Blocks that multiply the same rows of A read each stage of them from L2 only while they are about as far
// along k. Over many long tiles they drift apart, multiprocessors not being equally fast: in bf16x6 at 16384
// the last of 132 blocks was 4 ms of 84 behind the first, 85 % of all loads went to DRAM, and that, not the
// tensor cores, set the pace. Kept together they load 57 GB in place of 142 (265 before C was computed in
// panels), and make 134 TFLOPS in place of 115; fp16x3 222 in place of 205.
#pragma once

#include "cuda/device/sync.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Holds a producer warp back while most of the others are too far behind. That is advice and no
// synchronization: after a while the block goes on whatever the others do (they may wait for multiprocessors
// that another kernel has), and no result depends on it.
class Pace {
 public:
  static constexpr int kWorth = 512;  // stages of a block from which on it pays

  // `progress`: a word a block, cleared before the launch; null where there is no need to wait.
  __device__ __forceinline__ explicit Pace(uint32_t* progress) : progress_(progress) {}

  // Once a stage, by all lanes.
  __device__ __forceinline__ void step() {
    if (progress_ == nullptr || ++stages_ % kEvery != 0) return;
    const uint32_t mine = uint32_t(stages_ / kEvery);
    const int lane = int(threadIdx.x) % 32;
    if (lane == 0) store_release(progress_ + blockIdx.x, mine);
    const uint32_t* const other = progress_ + (int(blockIdx.x) + lane * int(gridDim.x) / 32) % int(gridDim.x);
    for (int i = 0; i < kPatience; ++i) {
      const bool is_near = load_acquire(other) + kAhead >= mine;
      if (__popc(__ballot_sync(0xffffffffu, is_near)) >= kNear) return;
      spin_wait();
    }
    progress_ = nullptr;
  }

 private:
  static constexpr int kEvery = 16, kAhead = 1;  // stages; multiples of them that a block may be ahead
  static constexpr int kNear = 24;               // of 32 blocks, one a lane
  static constexpr int kPatience = 200;          // about as many microseconds

  uint32_t* progress_;
  int stages_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
