//   make sim KERNEL=wgmma_fused ARGS='--dtype bf16'
//
// Level 6 on Hopper, beside wgmma_setmaxnreg: the epilogue of a layer in the kernel. For all other rungs
// of this folder, a second kernel computes activation(x W^T + bias) (parts/epilogues/finish.cu). That pass
// costs a launch, and more traffic:
//
//   product, then a pass    sums to C in float32   C read in float32   results written in bfloat16
//   here                                                               results written in bfloat16
//
// 10 bytes per element of C become 2, and the sums are rounded once either way. What changes from
// wgmma_setmaxnreg: when a tile is complete, each thread adds the bias to its sums and applies the activation
// in registers (finish_strip() in parts/epilogues), and then stores them as before. The tensor cores wait
// meanwhile: gelu takes 14 instructions per element, about 5 % of a product with K = 4096. So fusion pays if
// K is short, or if C is large compared with the operands. A residual is passed as the C that beta adds. Then
// the warps store C themselves, because a store by the TMA cannot add C.
//
// It applies the epilogue if alpha is 1, k is above 1, the operands lie along k and C is row-major
// (fuses_in_fragments in rules.h). In other cases it computes the plain product, and a pass follows.
#include "cuda/gemm/parts/epilogues/epilogue.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 256;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 128;
constexpr int kStages = 4, kBlocks = 1;  // on a multiprocessor
constexpr int kBiasBytes = 16;           // in registers at a time: the sums take 128 of them

using Shared = WgmmaStep<kBM, kBN, kStages, kBlocks, 2>::Shared;

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemm_wgmma_fused_kernel(const __grid_constant__ OperandMaps maps, const __grid_constant__ TensorMap out,
                            const __grid_constant__ WgmmaProblem<T> p, bool in_boxes,
                            const __grid_constant__ Epilogue epilogue) {
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
    if (b_major == Major::k && epilogue.asked())  // it is asked only for operands along k
      with_stored_type(p.gemm.result, [&]<class Out>() {
        finish_strip<kBiasBytes, Out>(epilogue, tile.column * kBN, int(p.gemm.n), sum);
      });
    store_tile<kBM, kBN>(shared->boxes[warp], out, in_boxes, p, sum, tile);
  });
  wait_stores_read<0>();  // the boxes live as long as the block
#endif
}

}  // namespace

void gemm_wgmma_fused(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN, float, Half, BFloat16>(
      problem, context, [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        RowCopies copies;  // of a bias whose pairs cannot be read as a whole
        const Epilogue epilogue = whole_pairs(problem.epilogue, p.gemm, copies, context);
        copies.launch({}, context);
        launch_tiles<gemm_wgmma_fused_kernel<T, a_major, b_major>>(
            "wgmma_fused", kBlocks, kThreads, sizeof(Shared), maps, p, context, epilogue);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
