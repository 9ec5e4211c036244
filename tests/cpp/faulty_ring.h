// The shared memory of the kernels with barriers in shared memory.
#pragma once

#include "faulty_kernels.h"

namespace fastgemm::simt::faults {

inline constexpr int kBoxBytes = kRow * int(sizeof(int));

// Two slots for one box each.
struct alignas(128) Ring {
  int tile[2][kRow];
  Barrier full[2], empty[2];
};

inline void init_ring(Ring& ring, int consumers) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) init_barrier(&ring.full[s], 1), init_barrier(&ring.empty[s], consumers);
    fence_barrier_init();
  }
  __syncthreads();
}

}  // namespace fastgemm::simt::faults
