//   make sim KERNEL=wgmma_persistent ARGS='--dtype bf16'
//
// Level 6 on Hopper, third step: persistent blocks. What changes from wgmma_ring:
//   - the two blocks of a multiprocessor compute tile after tile, and initialize their barriers once. The
//     ring does not stop between tiles: the producer fills stages of the next tile while the consumers store
//     this one.
//
//       producer   | copies tile 0 | copies tile 1    | copies tile 2 ...
//       consumers     | multiply 0    | store 0 | multiply 1    | store 1 | ...
//
//   - tiles are computed in bands of 16 tile rows (parts/schedules/tile_order.cuh): the tiles that are
//     computed at the same time read about as many rows of A as columns of B, and find most of them in L2.
//
// What is left: while a block stores its sums, it does not use the tensor cores.
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/wgmma_steps.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 128;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 32;
constexpr int kStages = 3, kBlocks = 2;  // on a multiprocessor
using Shared = StageRing<kStages, (kBM + kBN) * 128>;

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_wgmma_persistent_kernel(const __grid_constant__ OperandMaps maps,
                                 const __grid_constant__ WgmmaProblem<T> p) {
#if FASTGEMM_SM90A
  using Stage = OperandStage<T, a_major, b_major, kBM, kBN>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  shared->init(kConsumerWarps);
  const int warp = warp_index();

  if (warp == kConsumerWarps) {
    if (!elect_one()) return;
    RingPosition<kStages> at{0, 1};
    for_each_tile(p, [&](const TilePlace<16>& tile) {
      for (int step = 0; step < p.steps; ++step, at.advance()) {
        wait_phase(&shared->empty[at.stage], at.phase);
        Stage::load(shared->stage[at.stage], &shared->full[at.stage], maps, p, tile.batch, tile.row * kBM,
                    tile.column * kBN, step);
      }
    });
    return;
  }

  const int warpgroup = warp / 4, lane = int(threadIdx.x) % 32;
  Accumulator<T> sum[kBN / 2];  // (64, BN) of the warpgroup
  RingPosition<kStages> at{0, 0};
  for_each_tile(p, [&](const TilePlace<16>& tile) {
    Barrier* before = nullptr;
    for (int step = 0; step < p.steps; ++step, at.advance()) {
      wait_phase(&shared->full[at.stage], at.phase);
      Stage::multiply(sum, shared->stage[at.stage], warpgroup, step > 0);
      wgmma_wait<1>();
      if (step > 0 && lane == 0) arrive(before);
      before = &shared->empty[at.stage];
    }
    wgmma_wait<0>(sum);
    if (lane == 0) arrive(before);  // the last stage is free for the next tile before this one is stored
    store_sums(p.gemm.at_batch(tile.batch), sum, int64_t(tile.row) * kBM + 64 * warpgroup,
               int64_t(tile.column) * kBN);
  });
#endif
}

}  // namespace

void gemm_wgmma_persistent(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        const int64_t tiles = int64_t{p.tiles} * p.batch;
        const dim3 blocks(unsigned(std::min<int64_t>(tiles, kBlocks * multiprocessors())));
        launch<gemm_wgmma_persistent_kernel<T, a_major, b_major>>(
            "wgmma_persistent", {blocks, dim3(kThreads), sizeof(Shared)}, context)(maps, p);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
