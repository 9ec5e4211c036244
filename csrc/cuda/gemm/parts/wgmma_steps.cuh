// What the steps of the ladder on wgmma share, so that each file shows the one thing that it changes: the
// arguments of their kernels, the stages of operands in shared memory, and the plain store of the sums.
//
//   a stage                                       a ring of stages
//   +-----------------+  A: (BM, kK), kK being    stage:  0     1     2     3     0 ...
//   | BM x 128 bytes  |  128 bytes of k           full:   the copies of the stage have arrived
//   +-----------------+                           empty:  all consumer warps have read it
//   | BN x 128 bytes  |  B: (BN, kK)
//   +-----------------+
#pragma once

#include "cuda/device/operand_tile.cuh"
#include "cuda/gemm/parts/problem.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T>
struct WgmmaProblem {
  Gemm<T> gemm;
  int batch, tiles, tiles_m, tiles_n;  // tiles of a matrix
  int steps;                           // stages of a tile
  int batch_a, batch_b;                // 0 where the batch shares the operand
};

struct OperandMaps {
  TensorMap a, b;
};

template <class T>
struct WgmmaOperands {
  WgmmaProblem<T> problem;
  OperandMaps maps;
  Major a_major, b_major;
};

// Finds out how operands lie, copies those that the hardware cannot read, and makes their maps for tiles (bm,
// bn). Without `any_a`, an A whose rows do not run along k is transposed.
template <class T>
WgmmaOperands<T> wgmma_operands(const Gemm<T>&, int batch, int bm, int bn, bool any_a, Context&);

// What lies between a GemmProblem and a kernel for block tiles (BM, BN) and elements T:
// launch.operator()<T, a_major, b_major>(maps, problem) launches it. An A with k along its rows is enough to
// show what a step changes; only wgmma_boxes, which level=None chooses, is compiled for any A.
template <int BM, int BN, class... T, class Launch, bool any_a = false>
void run_wgmma_step(const GemmProblem& p, Context& context, Launch&& launch, std::bool_constant<any_a> = {}) {
  run_gemm<T...>(p, context, [&]<class E>(const Gemm<E>& g, int batch) {
    const WgmmaOperands<E> o = wgmma_operands(g, batch, BM, BN, any_a, context);
    with_majors<E>(o.a_major, o.b_major, [&]<Major a_major, Major b_major>() {
      if constexpr (any_a || a_major == Major::k)
        launch.template operator()<E, a_major, b_major>(o.maps, o.problem);
    });
  });
}

// Calls body(tile) for every tile of this block of a persistent grid, in the same order in all threads.
template <class T, class Body>
__device__ __forceinline__ void for_each_tile(const WgmmaProblem<T>& p, Body&& body) {
  for (int tile = int(blockIdx.x); tile < p.batch * p.tiles; tile += int(gridDim.x))
    body(TilePlace<16>(tile, p.tiles_m, p.tiles_n));
}

template <class T, Major a_major, Major b_major, int BM, int BN>
struct OperandStage {
  using E = TensorCoreElement<T>;
  using A = OperandTile<E, a_major, BM>;
  using B = OperandTile<E, b_major, BN>;

  // One thread asks for stage `step` of the tile at (row, column); its bytes arrive at `full`.
  __device__ __forceinline__ static void load(unsigned char* stage, Barrier* full, const OperandMaps& maps,
                                              const WgmmaProblem<T>& p, int batch, int row, int column,
                                              int step) {
    arrive_expecting(full, A::kBytes + B::kBytes);
    A::load(stage, &maps.a, full, row, step * A::kK, batch * p.batch_a);
    B::load(stage + A::kBytes, &maps.b, full, column, step * B::kK, batch * p.batch_b);
  }

  // sum (64, BN) (+)= rows [64 w, 64 w + 64) of A times B: a group of products, which runs asynchronously.
  __device__ __forceinline__ static void multiply(Accumulator<E> (&sum)[BN / 2], const unsigned char* stage,
                                                  int w, bool accumulate) {
    wgmma_fence(sum);
    multiply_tiles<E, A, B, a_major, b_major>(sum, A::descriptor(stage, 64 * w),
                                              B::descriptor(stage + A::kBytes), accumulate);
    wgmma_commit();
  }
};

template <int STAGES, int STAGE_BYTES>
struct StageRing {
  unsigned char stage[STAGES][STAGE_BYTES];
  Barrier full[STAGES], empty[STAGES];

  // All threads call it, and may use the barriers afterwards.
  __device__ __forceinline__ void init(int consumer_warps) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; ++i) init_barrier(&full[i], 1), init_barrier(&empty[i], consumer_warps);
      fence_barrier_init();
    }
    __syncthreads();
  }
};

// A thread stores its sums of the 64 rows from `row` on: pairs of neighbouring columns in two rows.
template <class T, int R>
__device__ __forceinline__ void store_sums(const Gemm<T>& g, const Accumulator<T> (&sum)[R], int64_t row,
                                           int64_t column) {
  FASTGEMM_UNROLL
  for (int i = 0; i < R; ++i) {
    const Position p = WgmmaLayout<TensorCoreElement<T>>::c(int(threadIdx.x) % 128, i);
    if (row + p.row < g.m && column + p.column < g.n) g.result.store(row + p.row, column + p.column, sum[i]);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
