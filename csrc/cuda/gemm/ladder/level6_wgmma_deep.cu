//   make sim KERNEL=wgmma_deep ARGS='--dtype bf16'
//
// Level 6 on Hopper, sixth step: more bytes on their way. What changes from wgmma_wide: the ring has four
// stages instead of three. While one stage is multiplied, 144 KB are being copied instead of 96 KB, and while
// the consumers store a tile, the producer fills four stages of the next one.
//
// This step gains less than 1 %: a stage is multiplied in some 1,000 cycles, so that two stages in flight
// already cover the latency of a copy. The fourth stage is there for wgmma_specialized, which stores a tile
// between the products of the next one.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 256;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 32;
constexpr int kStages = 4, kBlocks = 1;  // on a multiprocessor

struct Shared : StageRing<kStages, (kBM + kBN) * 128> {
  WarpBoxes<1> boxes[kConsumerWarps];
};
static_assert(kBlocks * (sizeof(Shared) + 1024) <= 228 << 10);

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_wgmma_deep_kernel(const __grid_constant__ OperandMaps maps, const __grid_constant__ TensorMap out,
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

void gemm_wgmma_deep(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        launch_tiles<gemm_wgmma_deep_kernel<T, a_major, b_major>>("wgmma_deep", kBlocks, kThreads,
                                                                  sizeof(Shared), maps, p, context);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
