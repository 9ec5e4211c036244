//   make sim KERNEL=wgmma_wide ARGS='--dtype bf16'
//
// Level 6 on Hopper, fifth step: wider tiles. What changes from wgmma_boxes: the block tile is 128 x 256, and
// one wgmma multiplies 64 x 256 sums.
//   - A tile's rows of A are used for 256 columns instead of 128. A stage of 48 KB serves as many products as
//     two stages of 32 KB did: a quarter less is copied for each product.
//   - The tensor cores read an operand from shared memory for each instruction: 64 rows of A and 256 columns
//     of B, where two instructions of 128 columns read the rows twice.
//
// 64 x 256 sums take 128 registers of a thread, so one block fits on a multiprocessor, and nothing multiplies
// while it stores a tile. The next two steps use the shared memory that the second block had.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 256;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 32;
constexpr int kStages = 3, kBlocks = 1;  // on a multiprocessor

struct Shared : StageRing<kStages, (kBM + kBN) * 128> {
  WarpBoxes<1> boxes[kConsumerWarps];
};
static_assert(kBlocks * (sizeof(Shared) + 1024) <= 228 << 10);

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_wgmma_wide_kernel(const __grid_constant__ OperandMaps maps, const __grid_constant__ TensorMap out,
                           const __grid_constant__ WgmmaProblem<T> p, bool in_boxes) {
#if FASTGEMM_SM90A
  using Stage = OperandStage<T, a_major, b_major, kBM, kBN>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  shared->init(kConsumerWarps);
  const int warp = warp_index();

  if (warp == kConsumerWarps) {
    if (elect_one()) load_tiles<Stage, kBM, kBN>(*shared, maps, p);
    return;
  }

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

void gemm_wgmma_wide(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        launch_tiles<gemm_wgmma_wide_kernel<T, a_major, b_major>>("wgmma_wide", kBlocks, kThreads,
                                                                  sizeof(Shared), maps, p, context);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
