//   make sim KERNEL=wgmma_ring ARGS='--dtype bf16'
//
// Level 6 on Hopper, second step: warps with roles. What changes from wgmma:
//   - one producer warp only asks for copies, up to three stages ahead, and two consumer warpgroups only
//     multiply. Each stage has two barriers in shared memory: `full` counts the bytes that the tensor memory
//     accelerator has copied, `empty` the consumer warps that have read the stage. So no warp waits for the
//     whole block: the main loop has no __syncthreads().
//
//       producer:   wait empty[s]  ->  expect bytes, TMA into stage s  ->  s + 1
//       consumers:  wait full[s]   ->  wgmma from stage s  ->  arrive at empty[s - 1]  ->  s + 1
//
// Tile, stages and the two blocks per multiprocessor are those of wgmma, so only the roles differ. Alone they
// gain nothing (the rate falls by 2 to 6 %): wgmma's second block already worked while the first one waited.
// The next steps need them. What is left: a block computes one tile. While it starts and while it stores,
// only the other block multiplies.
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"
#include "cuda/gemm/parts/wgmma_steps.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 128;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 32;
constexpr int kStages = 3, kBlocks = 2;  // on a multiprocessor
using Shared = StageRing<kStages, (kBM + kBN) * 128>;
static_assert(kBlocks * (sizeof(Shared) + 1024) <= 228 << 10);  // as in level5_producer_warp.cu

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_wgmma_ring_kernel(const __grid_constant__ OperandMaps maps,
                           const __grid_constant__ WgmmaProblem<T> p) {
#if FASTGEMM_SM90A
  using Stage = OperandStage<T, a_major, b_major, kBM, kBN>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  shared->init(kConsumerWarps);
  const int warp = warp_index();
  const BlockTile tile = block_tile<kBM, kBN>(unsigned(p.tiles_n));

  if (warp == kConsumerWarps) {  // the producer
    if (!elect_one()) return;
    RingPosition<kStages> at{0, 1};  // in phase 1 a new barrier does not wait: all stages are empty
    for (int step = 0; step < p.steps; ++step, at.advance()) {
      wait_phase(&shared->empty[at.stage], at.phase);
      Stage::load(shared->stage[at.stage], &shared->full[at.stage], maps, p, int(blockIdx.z), int(tile.row),
                  int(tile.col), step);
    }
    return;
  }

  const int warpgroup = warp / 4;
  Accumulator<T> sum[kBN / 2];  // (64, BN) of the warpgroup
  RingPosition<kStages> at{0, 0};
  Barrier* before = nullptr;  // of the stage before this one
  for (int step = 0; step < p.steps; ++step, at.advance()) {
    wait_phase(&shared->full[at.stage], at.phase);
    Stage::multiply(sum, shared->stage[at.stage], warpgroup, step > 0);
    wgmma_wait<1>();  // all but the newest products are done: the stage before has been read
    if (step > 0 && threadIdx.x % 32 == 0) arrive(before);
    before = &shared->empty[at.stage];
  }
  wgmma_wait<0>(sum);
  store_sums(p.gemm.at_batch(blockIdx.z), sum, tile.row + 64 * warpgroup, tile.col);
#endif
}

}  // namespace

void gemm_wgmma_ring(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        const dim3 blocks(unsigned(p.tiles), 1, unsigned(p.batch));
        launch<gemm_wgmma_ring_kernel<T, a_major, b_major>>(
            "wgmma_ring", {blocks, dim3(kThreads), sizeof(Shared)}, context)(maps, p);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
