//   make sim KERNEL=wgmma_setmaxnreg ARGS='--dtype bf16'
//
// Level 6 on Hopper, eighth step: registers where they are needed. What changes from wgmma_overlapped: the
// producer warp belongs to a warpgroup of four warps. They release registers (setmaxnreg), and the consumers
// claim them.
//
//   wgmma_overlapped    9 warps with 168 registers each; the producer needs few of them
//   here               12 warps begin with 168; then 8 consumers have 232, and the 4 others 40
//
// This step gains nothing: 64 x 256 sums take 128 registers per thread, for which 168 are just enough. But
// wgmma_specialized needs it: it keeps a rounded tile in another 64 registers and stores it between the
// products of the next one, even if the TMA cannot store it (map_result()). It also gives work to the other
// three warps of the producer's warpgroup, and divides the tiles of the last wave.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 256;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 128;
constexpr int kStages = 4, kBlocks = 1;  // on a multiprocessor

using Shared = WgmmaStep<kBM, kBN, kStages, kBlocks, 2>::Shared;

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_wgmma_setmaxnreg_kernel(const __grid_constant__ OperandMaps maps,
                                 const __grid_constant__ TensorMap out,
                                 const __grid_constant__ WgmmaProblem<T> p, bool in_boxes) {
#if FASTGEMM_SM90A
  using Stage = OperandStage<T, a_major, b_major, kBM, kBN>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  shared->init(kConsumerWarps);
  const int warp = warp_index();

  if (warp >= kConsumerWarps) {
    release_registers<40>();
    if (warp == kConsumerWarps && elect_one()) load_tiles<Stage, kBM, kBN>(*shared, maps, p);
    return;
  }

  claim_registers<232>();
  Accumulator<T> sum[kBN / 2];  // (64, BN) of the warpgroup
  RingPosition<kStages> at{0, 0};
  for_each_tile(p, [&](const TilePlace<16>& tile) {
    multiply_tile<Stage>(sum, *shared, at, p.steps, warp / 4);
    store_tile<kBM, kBN>(shared->boxes[warp], out, in_boxes, p, sum, tile);
  });
  wait_stores_read<0>();  // the boxes live as long as the block
#endif
}

}  // namespace

void gemm_wgmma_setmaxnreg(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        launch_tiles<gemm_wgmma_setmaxnreg_kernel<T, a_major, b_major>>("wgmma_setmaxnreg", kBlocks, kThreads,
                                                                        sizeof(Shared), maps, p, context);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
