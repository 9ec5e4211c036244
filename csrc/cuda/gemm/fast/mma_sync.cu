// Level 6 since sm_80, third step: the kernel that level 6 takes. What changes from mma_ldmatrix (ladder/):
//   - copies and loads of fragments are placed between the products, as in wmma (parts/line_tile.cuh). A lane
//     computes one address for all fragments of a step, where wmma computes one for each. That saves a
//     quarter of the instructions of a stage;
//   - ldmatrix transposes an operand of 16 bits that runs along m or n while it loads it;
//   - blocks of 128 x 256 need a quarter less of the L2 cache's bandwidth;
//   - the kernel is persistent, and stream-K shares the last tiles evenly (parts/schedules/stream_k.cuh).
// Three stages take 144 KB. A GPU that gives a block only 99 KB (compute capability 8.6, 8.9 and 12.x) has
// room for two. There the tensor cores take longer for a stage than memory does, so large tiles matter more
// than a third stage.
//
// On Hopper mma.sync reaches at most two thirds of wgmma's rate (docs/tensor_cores.md).
#include "cuda/gemm/parts/large_mma.cuh"
#include "cuda/gemm/parts/residues/bytes.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <class C, class T, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_mma_sync_kernel(const __grid_constant__ TileArguments<StorageElement<T>> arguments) {
  if constexpr (kMayHaveStages<C::kStages, kLargeMmaStageBytes>)
    multiply_parts<LargeMmaKernel<C, T, a_along_k, b_along_k>>(arguments);
}

template <class C, class T, class Storage>
void launch_mma_sync(const Gemm<Storage>& g, int batch, const Sharing& sharing, const Epilogue& epilogue,
                     Context& context) {
  constexpr OperandLayout kLayout = sizeof(T) == 2 ? OperandLayout::any : OperandLayout::along_k;
  const int64_t tiles = batch * ceil_div(g.m, C::BM) * ceil_div(g.n, C::BN);
  const int blocks = int(std::min<int64_t>(tiles, C::kBlocks * multiprocessors()));
  auto arguments =
      tile_arguments<kLayout>(g, batch, C::BM, C::BN, 128 / int(sizeof(T)), blocks, sharing, context);
  arguments.epilogue = epilogue;
  const auto run = [&]<bool a_along_k, bool b_along_k>() {
    using K = LargeMmaKernel<C, T, a_along_k, b_along_k>;
    static_assert(sizeof(typename K::Shared) == C::kStages * K::kStageBytes);
    const LaunchShape shape{dim3(unsigned(arguments.blocks)), dim3(C::kThreads), sizeof(typename K::Shared)};
    launch<gemm_mma_sync_kernel<C, T, a_along_k, b_along_k>>("mma_sync", shape, context)(arguments);
  };
  if constexpr (kFuses<C>)
    run.template operator()<true, true>();
  else
    arguments.operands.template with_directions<kLayout>(run);
}

}  // namespace

void residues::multiply_bytes(const Gemm<int8_t>& g, Context& context) {
  with_stages<kLargeMmaStageBytes>(
      [&]<int STAGES>() { launch_mma_sync<LargeMmaTiles<STAGES>, int8_t>(g, 1, Sharing{2}, {}, context); });
}

void gemm_mma_sync(const GemmProblem& problem, Context& context) {
  with_stages<kLargeMmaStageBytes>([&]<int STAGES>() {
    run_with_storage<float, Half, BFloat16>(problem, context, [&]<class T>(const auto& g, int batch) {
      const Sharing sharing = problem.invariant ? plans::kUnshared : Sharing{2};
      if constexpr (std::is_same_v<Accumulator<T>, float>) {
        if (problem.epilogue.asked())
          return launch_mma_sync<Fusing<LargeMmaTiles<STAGES>>, T>(g, batch, sharing, problem.epilogue,
                                                                   context);
      }
      launch_mma_sync<LargeMmaTiles<STAGES>, T>(g, batch, sharing, {}, context);
    });
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
