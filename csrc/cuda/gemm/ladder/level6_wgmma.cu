//   make sim KERNEL=wgmma ARGS='--dtype bf16'
//
// Level 6 on Hopper, first step: tensor cores that read shared memory. What changes from level 5:
//   - a warpgroup (four warps) multiplies 64 rows of A by 128 columns of B per instruction, 32 bytes of k at
//     a time. It does so asynchronously and directly from shared memory: no operand passes through registers,
//     which hold only sums;
//   - the tensor memory accelerator loads tiles from any layout, with zeros beyond the edges, so nothing is
//     packed. Rows of 128 bytes are permuted so that the tensor cores have no bank conflicts.
//
// The block tile is 128 x 128: two warpgroups of 64 x 128. As soon as the block has multiplied a stage, one
// thread starts the copies of new data to it, while the products of the next stage run. Three stages of 32 KB
// leave room for two blocks on a multiprocessor: while one waits, the other multiplies.
#include "cuda/gemm/parts/tile_grid.cuh"
#include "cuda/gemm/parts/wgmma_steps.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kTile = 128, kStages = 3, kThreads = 256;

struct Shared {
  unsigned char stage[kStages][2 * kTile * 128];  // (kTile, kK) of A, then of B
  Barrier full[kStages];
};

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_wgmma_kernel(const __grid_constant__ OperandMaps maps, const __grid_constant__ WgmmaProblem<T> p) {
#if FASTGEMM_SM90A
  using Stage = OperandStage<T, a_major, b_major, kTile, kTile>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  const BlockTile tile = block_tile<kTile, kTile>(unsigned(p.tiles_n));
  const auto load = [&](int step) {
    const int stage = step % kStages;
    Stage::load(shared->stage[stage], &shared->full[stage], maps, p, int(blockIdx.z), int(tile.row),
                int(tile.col), step);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) init_barrier(&shared->full[i], 1);
    fence_barrier_init();
    for (int step = 0; step < min(kStages, p.steps); ++step) load(step);
  }
  __syncthreads();

  const int warpgroup = warp_index() / 4;
  Accumulator<T> sum[kTile / 2];  // (64, kTile) of the warpgroup
  for (int step = 0; step < p.steps; ++step) {
    const int stage = step % kStages;
    wait_phase(&shared->full[stage], uint32_t(step / kStages % 2));
    Stage::multiply(sum, shared->stage[stage], warpgroup, step > 0);
    wgmma_wait<1>();  // the products of the stage before are complete,
    __syncthreads();  // in both warpgroups
    const int next = step - 1 + kStages;
    if (threadIdx.x == 0 && step > 0 && next < p.steps) load(next);
  }
  wgmma_wait<0>(sum);
  store_sums(p.gemm.at_batch(blockIdx.z), sum, tile.row + 64 * warpgroup, tile.col);
#endif
}

}  // namespace

void gemm_wgmma(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kTile, kTile, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        const dim3 blocks(unsigned(p.tiles), 1, unsigned(p.batch));
        launch<gemm_wgmma_kernel<T, a_major, b_major>>("wgmma", {blocks, dim3(kThreads), sizeof(Shared)},
                                                       context)(maps, p);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
