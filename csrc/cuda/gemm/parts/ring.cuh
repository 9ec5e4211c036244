// Where a warp is in a ring of stages that barriers hand over: producers fill a stage and report it full,
// consumers read it and report it empty.
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The phase of a stage's barriers flips at each turn. A producer begins with phase 1: a fresh stage counts as
// emptied.
template <int STAGES>
struct RingPosition {
  int stage = 0;
  uint32_t phase;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
