// Level 6 for products of few tiles with a long k: split-K. What changes from wgmma_specialized and mma_sync:
//   - k is cut into parts, and each block computes one part of one tile;
//   - no block waits for another: partial sums go to the workspace as matrices, and a second kernel adds them
//     (parts/schedules/split_k.cuh). On Hopper that kernel starts early, by programmatic dependent launch;
//   - a block stores nothing before its last product. So with wgmma no registers have to move between
//     warpgroups (setmaxnreg), and the first copies are issued before the block's first barrier.
// Without wgmma the main loop is that of mma_sync (parts/line_tile.cuh), with tiles of the same size.
//
// Reading the operands takes most of the time. Tiles of 128 x 256 are slower, because their partial sums have
// twice as many bytes. Clusters whose blocks add their sums among themselves are slower, too.
#include "cuda/available.h"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/parts/warp_product.cuh"
#include "cuda/gemm/parts/wgmma_kernel.cuh"
#include "cuda/gemm/predict/plans.h"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kM = plans::kSplitKTile, kN = kM, kStageBytes = (kM + kN) * 128;
using Shared = WgmmaShared<6, kStageBytes, kM / 16>;
// More than Shared needs, so that the shared-memory carve-out leaves room for blocks of the second kernel.
constexpr int kSharedBytes = int(sizeof(Shared)) + (8 << 10);
static_assert(kSharedBytes <= 227 << 10);

template <class T>
struct Arguments {
  SplitSums<Accumulator<T>> sums;
  int tiles_n;  // tiles along n per matrix
  SplitStages stages;
};
template <class T>
struct MmaArguments : Arguments<T> {
  RowsOperands<T> operands;
};

// The schedule: a block computes stages [begin, end) of one tile. Blocks with the same part of k are
// neighbours in the grid, so that they find each other's operands in L2.
struct Share {
  int split, batch, row, column, begin, end;

  template <class T>
  __device__ __forceinline__ explicit Share(const Arguments<T>& g) {
    const int tile = int(blockIdx.x);
    split = int(blockIdx.z), batch = int(blockIdx.y);
    row = tile / g.tiles_n * kM, column = tile % g.tiles_n * kN;
    begin = g.stages.begin(split), end = g.stages.begin(split + 1);
  }
  template <class Body>
  __device__ __forceinline__ void each_part(Body&& body) const {
    body(Part{}, begin, end);
  }
  __device__ __forceinline__ const Share& place(const Part&) const { return *this; }
};

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(Shared::kThreads, 1)
    gemm_split_k_kernel(const __grid_constant__ BoxMaps maps, const __grid_constant__ Arguments<T> g) {
#if FASTGEMM_SM90A
  using Source = BoxSource<T, a_major, kM, Read::once, b_major, kN, Read::once>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  const int warp = warp_index();
  const Share share(g);
  run_wgmma(*shared, Source{maps}, share, warp, [&](const auto& sum, const Part&) {
    FASTGEMM_UNROLL
    for (int i = 0; i < Source::kSums; i += 2) {
      const Position p = WgmmaLayout<T>::c(int(threadIdx.x) % 128, i);
      g.sums.put(share.split, share.batch, share.row + 64 * (warp / 4) + p.row, share.column + p.column,
                 sum[i], sum[i + 1]);
    }
  });
#endif
}

using MmaTiles = TileConfig<kM, kN, 64, 32, 3, 1>;  // 96 KB

template <class T, bool a_along_k, bool b_along_k>
struct MmaKernel {
  using TileA = LineTile<T, a_along_k, kM, SwizzledLines<8>>;  // (kM, 128 bytes)
  using TileB = LineTile<T, b_along_k, kN, SwizzledLines<8>>;  // (kN, 128 bytes)
  using CopyA = TileCopy<TileA, T, MmaTiles::kThreads>;
  using CopyB = TileCopy<TileB, T, MmaTiles::kThreads>;
  using Warp = WarpProduct<MmaTiles, T, TileA, TileB>;
  struct Shared {
    unsigned char ring[MmaTiles::kStages][kStageBytes];
  };
  static_assert(TileA::kBytes + TileB::kBytes == kStageBytes && sizeof(Shared) <= kLeastBlockBytes);
};

// The operand, cut off at the end of a block's part of k. The loop loads one stage more than it multiplies.
// Because the operand ends there, that stage is filled with zeros and nothing is read from memory.
template <class T>
__device__ __forceinline__ RowsOperand<T> up_to(int end, RowsOperand<T> operand) {
  operand.k = min(operand.k, end * (128 / int(sizeof(T))));
  return operand;
}

template <class T, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(MmaTiles::kThreads, MmaTiles::kBlocks)
    gemm_split_k_mma_kernel(const __grid_constant__ MmaArguments<T> g) {
#if FASTGEMM_PORTABLE
  using K = MmaKernel<T, a_along_k, b_along_k>;
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  const Share part(g);
  const int w = warp_index(), steps = part.end - part.begin;
  const int row = w % MmaTiles::kWarpsM * MmaTiles::WM, column = w / MmaTiles::kWarpsM * MmaTiles::WN;
  const RowsOperand<T> a = up_to(part.end, g.operands.a), b = up_to(part.end, g.operands.b);
  StageCopy copies(typename K::CopyA(a, part.batch, part.row, part.begin),
                   typename K::CopyB(b, part.batch, part.column, part.begin), steps + 1);
  typename K::Warp warp(row, column);
  multiply_stages<MmaTiles::kStages, kStageBytes>(shared->ring[0], steps, copies, warp);
  g.sums.put(part.split, part.batch, part.row + row, part.column + column, warp.sum);
#endif
}

// How a product is split, and its workspace.
template <class T>
struct Plan {
  Arguments<T> arguments;
  dim3 grid;

  Plan(const Gemm<T>& g, int batch, Context& context) {
    const int64_t tiles_m = ceil_div(g.m, kM), tiles_n = ceil_div(g.n, kN);
    const int stages = int(ceil_div(g.k, 128 / int(sizeof(T))));
    const double elements = double(batch) * double(g.m * g.n);
    const int splits = plans::split_k_splits(batch * tiles_m * tiles_n, elements, stages, multiprocessors());
    arguments = {split_sums(g, batch, splits, context), int(tiles_n), SplitStages(stages, splits)};
    grid = dim3(unsigned(tiles_m * tiles_n), unsigned(batch), unsigned(splits));
  }
};

template <class T>
void launch_wgmma(const Gemm<T>& g, int batch, const Epilogue& epilogue, Context& context) {
  RowCopies copies;
  const BoxOperands<T> operands(g, batch, copies, context);
  copies.launch({}, context);
  const Plan<T> plan(g, batch, context);
  const BoxMaps maps(operands.a, kM, operands.b, kN);
  operands.with_majors([&]<Major a_major, Major b_major>() {
    launch<gemm_split_k_kernel<T, a_major, b_major>>(
        "split_k", {plan.grid, dim3(Shared::kThreads), kSharedBytes, true}, context)(maps, plan.arguments);
  });
  add_splits(plan.arguments.sums, g, context, epilogue);
}

template <class T>
void launch_mma(const Gemm<T>& g, int batch, const Epilogue& epilogue, Context& context) {
  constexpr OperandLayout kLayout = sizeof(T) == 2 ? OperandLayout::any : OperandLayout::along_k;
  const RowsOperands<T> operands = rows_operands<kLayout>(g, batch, context);
  const Plan<T> plan(g, batch, context);
  const MmaArguments<T> arguments{plan.arguments, operands};
  operands.template with_directions<kLayout>([&]<bool a_along_k, bool b_along_k>() {
    const LaunchShape shape{plan.grid, dim3(MmaTiles::kThreads),
                            sizeof(typename MmaKernel<T, a_along_k, b_along_k>::Shared)};
    launch<gemm_split_k_mma_kernel<T, a_along_k, b_along_k>>("split_k", shape, context)(arguments);
  });
  add_splits(arguments.sums, g, context, epilogue);
}

}  // namespace

void gemm_split_k(const GemmProblem& problem, Context& context) {
  const Epilogue epilogue = by_rows(problem).epilogue;
  run_gemm<Half, BFloat16, int8_t>(problem, context, [&](const auto& g, int batch) {
    cuda::has_wgmma() ? launch_wgmma(g, batch, epilogue, context) : launch_mma(g, batch, epilogue, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
