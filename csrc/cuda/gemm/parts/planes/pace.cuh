// Keeps the blocks of a long launch about equally far along k, so that they find each other's operands in L2.
// Contract: the producer of each block calls step() once per stage. Results do not depend on it.
//
//   stages done   block 0  ##########            L2 holds the stages between the slowest
//                 block 1  ########              block and the fastest one: a block that is too
//                 block 2  ############| waits    far ahead waits until most others are near it
//                 block 3  #########
//
// Multiprocessors are not equally fast. Over many long tiles the blocks drift apart, until blocks that
// multiply the same rows of A no longer read the same stage at about the same time. Then most loads miss L2,
// and DRAM limits the rate instead of the tensor cores (docs/tensor_cores.md).
#pragma once

#include "cuda/device/sync.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Holds a producer warp back while most other blocks are too far behind. This is a heuristic, not a
// synchronization: after a while the block goes on in any case, because the others may still wait for a
// multiprocessor that another kernel occupies.
class Pace {
 public:
  static constexpr int kWorth = 512;  // pacing pays from this number of stages per block on

  // `progress` has a word for each block, cleared before the launch. It is null where pacing does not pay.
  __device__ __forceinline__ explicit Pace(uint32_t* progress) : progress_(progress) {}

  // All lanes of the producer warp call this once per stage.
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
  static constexpr int kEvery = 16, kAhead = 1;  // check every 16 stages; a block may be 16 stages ahead
  static constexpr int kNear = 24;               // of 32 blocks, each observed by a lane
  static constexpr int kPatience = 200;          // polls, of about a microsecond each

  uint32_t* progress_;
  int stages_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
