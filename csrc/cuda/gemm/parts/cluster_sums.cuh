// Split-K within a cluster: blocks that have the same tile of C and different parts of k add their sums
// through each other's shared memory, each block a share of the tile's rows, and store them. Contract: all
// threads of all blocks of the cluster call store() when their rings are free; the order of the sums is that
// of the blocks, the same for every element.
//
//   block    sums in shared memory      after the cluster's barrier block r
//     0    [ rows 0 | rows 1 | ... ]    reads rows r of all blocks, adds them in order,
//     1    [ rows 0 | rows 1 | ... ]    and stores whole lines of C
//
// No second launch, no workspace, and nobody waits but for blocks that run at the same time.
#pragma once

#include "cuda/device/cluster.cuh"
#include "cuda/gemm/parts/warp_slab.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Tiles (16 WARPS, COLUMNS), of which each of the first WARPS warps has 16 rows, as mma and wgmma lay them
// out.
template <class Acc, int WARPS, int COLUMNS, int CLUSTER>
struct ClusterSums {
  using Quad = Vector<Acc, 4>;  // a lane's part of a tile (16, 8)
  static constexpr int kQuads = COLUMNS / 8, kMine = kQuads / CLUSTER, kRows = 16 * WARPS / CLUSTER;
  static_assert(WARPS % CLUSTER == 0 && kQuads % CLUSTER == 0 && 16 % CLUSTER == 0);

  Quad quads[CLUSTER > 1 ? WARPS : 1][kQuads][32];    // a warp's sums in its lanes' order: no conflicts
  WarpSlab<Acc, 16 / CLUSTER, COLUMNS> slabs[WARPS];  // the block's rows, complete sums

  // The tile begins at (row, column) of C; `warp` is the thread's.
  template <class T>
  __device__ __forceinline__ void store(const Acc (&sum)[4 * kQuads], int warp, const Gemm<T>& g,
                                        ResultVectors vectors, int64_t row, int64_t column) {
    const bool has_sums = warp < WARPS;
    if constexpr (CLUSTER == 1) {
      if (!has_sums) return;
      slabs[warp].put(reinterpret_cast<const Acc(&)[1][kQuads][4]>(sum));
      __syncwarp();
      slabs[warp].store(g, vectors, row + 16 * warp, column);
    } else {
      if (has_sums) put(sum, warp);
      cluster_sync();
      const int rank = cluster_rank();
      if (has_sums) add(warp, rank);
      cluster_arrive();  // the other blocks' sums have been read
      __syncthreads();
      if (has_sums) slabs[warp].store(g, vectors, row + rank * kRows + 16 / CLUSTER * warp, column);
      cluster_wait();  // this block's have been
    }
  }

 private:
  __device__ __forceinline__ void put(const Acc (&sum)[4 * kQuads], int warp) {
    FASTGEMM_UNROLL
    for (int q = 0; q < kQuads; ++q)
      store_vector(&quads[warp][q][threadIdx.x % 32],
                   Quad{{sum[4 * q], sum[4 * q + 1], sum[4 * q + 2], sum[4 * q + 3]}});
  }
  // CLUSTER warps share the 16 rows that a warp of every block has; all loads are in flight at once.
  __device__ __forceinline__ void add(int warp, int rank) {
    const int lane = int(threadIdx.x) % 32, group = warp / CLUSTER, first = warp % CLUSTER * kMine;
    Quad read[CLUSTER][kMine];
    FASTGEMM_UNROLL
    for (int b = 0; b < CLUSTER; ++b) {
      const Quad* const from = map_shared_rank(&quads[rank * (WARPS / CLUSTER) + group][first][lane], b);
      FASTGEMM_UNROLL
      for (int q = 0; q < kMine; ++q) read[b][q] = load_vector<Quad>(from + 32 * q);
    }
    const Position p = MmaLayout<float>::c(lane, 0);  // the same for all types
    FASTGEMM_UNROLL
    for (int q = 0; q < kMine; ++q) {
      Quad sum = read[0][q];
      FASTGEMM_UNROLL
      for (int b = 1; b < CLUSTER; ++b) {
        FASTGEMM_UNROLL
        for (int e = 0; e < 4; ++e) sum[e] += read[b][q][e];
      }
      FASTGEMM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * group + p.row + 8 * half;
        auto& slab = slabs[row / slabs[0].kRows];
        store_vector(&slab.sums[row % slab.kRows * slab.kPitch + 8 * (first + q) + p.column],
                     Vector<Acc, 2>{{sum[2 * half], sum[2 * half + 1]}});
      }
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
