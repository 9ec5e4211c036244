//   make sim KERNEL=wgmma_boxes ARGS='--dtype bf16'
//
// Level 6 on Hopper, fourth step: the hardware stores. What changes from wgmma_persistent: a warp writes its
// finished sums, rounded, to a box of 16 rows x 128 bytes in shared memory, and the tensor memory accelerator
// (TMA) stores the box to C (store_boxes() in parts/wgmma_tiles.cuh).
//   - C is written in lines of 128 bytes: 64 sectors for 2 KB. A plain store of a warp fills 8 of the 32
//     bytes of each sector that it touches, since a thread stores one element of 2 bytes at a time: the same
//     2 KB take 32 requests of 8 sectors.
//   - The last box of a tile is on its way while the next tile is multiplied.
//
// Tile, stages and the two blocks of a multiprocessor are those of wgmma_persistent. A warp has one box,
// because two blocks have no room for more, and waits until the box is read before it writes the next part.
// Results that the TMA cannot store, or with a c to be added (map_result()), take the plain way.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 128;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 32;
constexpr int kStages = 3, kBlocks = 2;  // on a multiprocessor

struct Shared : StageRing<kStages, (kBM + kBN) * 128> {
  WarpBoxes<1> boxes[kConsumerWarps];
};
// A multiprocessor has 228 KB of shared memory, of which each block takes 1 KB beside its own.
static_assert(kBlocks * (sizeof(Shared) + 1024) <= 228 << 10);

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_wgmma_boxes_kernel(const __grid_constant__ OperandMaps maps, const __grid_constant__ TensorMap out,
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

void gemm_wgmma_boxes(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        launch_tiles<gemm_wgmma_boxes_kernel<T, a_major, b_major>>("wgmma_boxes", kBlocks, kThreads,
                                                                   sizeof(Shared), maps, p, context);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
