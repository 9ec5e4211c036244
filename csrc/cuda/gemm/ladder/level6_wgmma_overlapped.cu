//   make sim KERNEL=wgmma_overlapped ARGS='--dtype bf16'
//
// Level 6 on Hopper, seventh step: stores that overlap. What changes from wgmma_deep: a warp has two boxes,
// and writes one while the tensor memory accelerator reads the other.
//
//   sums -> box 0 -> TMA store ------------>                    columns 0 to 63 of C (bfloat16)
//           sums -> box 1 -> TMA store ------------>            columns 64 to 127
//                   wait until box 0 is read, sums -> box 0 -> TMA store ...
//
// The last boxes of a tile are on their way while the next tile is multiplied. This step gains less than 1 %
// where K is large: with one box a warp waits three times a tile until the box is read, and a tile takes
// 65,000 cycles at K = 4096.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 256;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 32;
constexpr int kStages = 4, kBlocks = 1;  // on a multiprocessor

struct Shared : StageRing<kStages, (kBM + kBN) * 128> {
  WarpBoxes<2> boxes[kConsumerWarps];
};
static_assert(kBlocks * (sizeof(Shared) + 1024) <= 228 << 10);

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_wgmma_overlapped_kernel(const __grid_constant__ OperandMaps maps,
                                 const __grid_constant__ TensorMap out,
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

void gemm_wgmma_overlapped(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        launch_tiles<gemm_wgmma_overlapped_kernel<T, a_major, b_major>>("wgmma_overlapped", kBlocks, kThreads,
                                                                        sizeof(Shared), maps, p, context);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
