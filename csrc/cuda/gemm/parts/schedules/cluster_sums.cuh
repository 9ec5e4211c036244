// Split-K inside a cluster: the blocks of a cluster multiply parts of the k of one tile, and each of them
// sums and stores a part of the tile. Contract: all threads of all blocks call begin() before the main loop.
// After it, warpgroups with sums call add(), each with memory of its own. add() returns the sums of the
// block's columns, added in the order of the splits, which is the same in every run.
//
//   block 0     block 1                each block writes the columns of the others to their shared memory,
//   +----+----+ +----+----+            then adds what it got
//   | 0  | 1 -----> 1| 1  |
//   |    |    | |    |    |            No sums go through global memory, and no second kernel is launched.
//   +----+----+ +-|--+----+
//     ^-----------+
//
// The sums count on a barrier of the block that gets them. With a barrier of the cluster, which orders all
// memory of its blocks, one_wave took 0.1 to 0.3 us longer on an H200.
#pragma once

#include "cuda/device/cluster.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class Acc, int SPLITS, int BLOCKS, int COLUMNS>
class ClusterSums {
 public:
  static constexpr int kColumns = COLUMNS / SPLITS;  // of a block, after add()
  static constexpr int kSums = kColumns / 2, kVectors = kSums / 4 * BLOCKS;
  static_assert(kColumns % 8 == 0, "whole groups of columns of wgmma");
  struct Shared {
    Vector<Acc, 4> from[SPLITS - 1][kVectors][128];  // from the other blocks in order, for each thread
    Barrier here;                                    // they are
  };

  template <int N>
  __device__ __forceinline__ static void begin(Shared (&all)[N]) {
    if (threadIdx.x == 0) {
      FASTGEMM_UNROLL
      for (Shared& shared : all) init_barrier(&shared.here, 1);
      fence_barrier_init();
      FASTGEMM_UNROLL
      for (Shared& shared : all) arrive_expecting(&shared.here, int(sizeof(shared.from)));
    }
    __syncwarp();
    cluster_arrive();
  }

  __device__ __forceinline__ static void add(Shared& shared, const Acc (&sum)[BLOCKS][COLUMNS / 2],
                                             Acc (&mine)[BLOCKS][kSums]) {
    const int rank = cluster_rank(), thread = int(threadIdx.x) % 128;
    cluster_wait();  // all blocks have begun
    FASTGEMM_UNROLL
    for (int to = 0; to < SPLITS; ++to) {
      if (to == rank) continue;
      FASTGEMM_UNROLL
      for (int i = 0; i < kVectors; ++i) {
        const Acc* const x = &sum[i / (kSums / 4)][to * kSums + i % (kSums / 4) * 4];
        store_async_remote(&shared.from[rank - (rank > to)][i][thread],
                           Vector<Acc, 4>{{x[0], x[1], x[2], x[3]}}, &shared.here, to);
      }
    }
    wait_phase(&shared.here, 0);
    FASTGEMM_UNROLL
    for (int split = 0; split < SPLITS; ++split) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kVectors; ++i) {
        Vector<Acc, 4> part;
        if (split == rank) {
          FASTGEMM_UNROLL
          for (int own = 0; own < SPLITS; ++own)  // registers have no run-time index
            if (own == rank)
              for (int e = 0; e < 4; ++e)
                part[e] = sum[i / (kSums / 4)][own * kSums + i % (kSums / 4) * 4 + e];
        } else {
          part = shared.from[split - (split > rank)][i][thread];
        }
        FASTGEMM_UNROLL
        for (int e = 0; e < 4; ++e) {
          Acc& to = mine[i / (kSums / 4)][i % (kSums / 4) * 4 + e];
          to = split == 0 ? part[e] : to + part[e];
        }
      }
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
