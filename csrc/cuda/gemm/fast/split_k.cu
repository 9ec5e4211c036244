// Level 6 for few tiles with long k: split-K. What changes from wgmma_specialized and mma_sync:
//   - k is cut into parts, and each block computes one part of one tile;
//   - on Hopper up to 8 blocks with parts of one tile are a cluster and add their sums through shared memory
//     (parts/cluster_sums.cuh). Where that is all of k, they store C;
//   - else no block waits for another: sums go to the workspace as matrices, and a second kernel, on Hopper
//     started early by programmatic dependent launch, adds them (parts/split_k.cuh);
//   - there are no stores between products. With wgmma no registers have to be moved between warpgroups
//     then, and the first copies are issued before the block's first barrier.
// Where there is no wgmma, the main loop is mma_sync's (parts/line_tile.cuh), on tiles of the same size.
//
// What is left is mostly the time to read the operands. Tiles of 128 x 256 are slower, because their
// partial sums are twice as many bytes, and so are clusters that share operands.
#include "cuda/available.h"
#include "cuda/gemm/parts/cluster_sums.cuh"
#include "cuda/gemm/parts/launch_splits.cuh"
#include "cuda/gemm/parts/warp_product.cuh"
#include "cuda/gemm/parts/wgmma_consumer.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// The block tile, 16 rows of it for each consumer warp; a producer warpgroup, one thread of which works; the
// ring of stages.
constexpr int kM = plans::kSplitKTile, kN = kM, kConsumerWarps = kM / 16,
              kThreads = 32 * kConsumerWarps + 128;
constexpr int kStageBytes = (kM + kN) * 128, kStages = 6;

// 1, 2, 4 or 8 blocks.
template <class T, int cluster>
using TileSums = ClusterSums<Accumulator<T>, kConsumerWarps, kN, cluster>;

template <class T>
struct Shared {
  union {
    unsigned char stage[kStages][kStageBytes];  // (kM, kK) of A, then (kN, kK) of B
    TileSums<T, 1> sums1;
    TileSums<T, 2> sums2;
    TileSums<T, 4> sums4;
    TileSums<T, 8> sums8;
  };
  RingBarriers<kStages> ring;
  static_assert(sizeof(TileSums<T, 2>) <= sizeof stage);

  // Calls body with the sums of a cluster of so many blocks.
  template <class Body>
  __device__ __forceinline__ void with_sums(int cluster, Body&& body) {
    if (cluster == 1) return body(sums1);
    if (cluster == 2) return body(sums2);
    if (cluster == 4) return body(sums4);
    body(sums8);
  }
};
// More than Shared needs, so that the carve-out of shared memory leaves room for blocks of the second
// kernel.
constexpr int kSharedBytes = int(sizeof(Shared<float>)) + (8 << 10);
static_assert(kSharedBytes <= 227 << 10);

struct Arguments {
  int tiles_n;  // of a matrix
  SplitStages stages;
};
template <class T>
struct WgmmaArguments : Arguments {
  int batch_a, batch_b;  // 0 where the batch shares the operand
  int cluster;
  Gemm<T> gemm;  // its result is C, or the matrices of partial sums
  ResultVectors vectors;
};
template <class T>
struct MmaArguments : Arguments {
  SplitSums<Accumulator<T>> sums;
  RowsOperands<T> operands;
};

// A block's work: stages [begin, end) of a tile. The blocks of a cluster are neighbours in the grid, and so
// are those of one part of k, so that they find each other's operands in L2.
struct Share {
  int batch, row, column, begin, end;

  __device__ __forceinline__ explicit Share(const Arguments& g, int cluster = 1) {
    const int tile = int(blockIdx.x) / cluster, split = int(blockIdx.z) * cluster + int(blockIdx.x) % cluster;
    batch = int(blockIdx.y);
    row = tile / g.tiles_n * kM, column = tile % g.tiles_n * kN;
    begin = g.stages.begin(split), end = g.stages.begin(split + 1);
  }
};

// One thread issues the copies, stage after stage.
template <class A, class B, class T>
struct Producer {
  Shared<T>& shared;
  const TensorMap &a, &b;
  const WgmmaArguments<T>& g;
  const Share& part;
  int step = part.begin;
  RingPosition<kStages> at{0, 1};  // a fresh stage counts as emptied

  __device__ __forceinline__ void run_to(int end) {
    FASTGEMM_NO_UNROLL
    for (; step < end; ++step)
      shared.ring.fill(at, true, A::kBytes + B::kBytes, [&](int stage, Barrier* full) {
        unsigned char* const to = shared.stage[stage];
        A::template load<true>(to, &a, full, part.row, step * A::kK, part.batch * g.batch_a);
        B::template load<true>(to + A::kBytes, &b, full, part.column, step * B::kK, part.batch * g.batch_b);
      });
  }
};

template <class Products, class T>
__device__ __forceinline__ void consume(Shared<T>& shared, const Share& part, int warp,
                                        Accumulator<T> (&sum)[kN / 2]) {
  WgmmaConsumer<kStages, kStageBytes, Products> consumer(shared.ring, shared.stage[0], warp);
  FASTGEMM_NO_UNROLL
  for (int step = part.begin; step < part.end; ++step) consumer.multiply(sum, step > part.begin, [] {});
  consumer.finish(sum);
}

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_split_k_kernel(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                        const __grid_constant__ WgmmaArguments<T> g) {
#if FASTGEMM_SM90A
  using A = OperandTile<T, a_major, kM>;
  using B = OperandTile<T, b_major, kN>;
  FASTGEMM_DYNAMIC_SHARED(Shared<T>, shared);
  const int warp = warp_index();
  const Share part(g, g.cluster);
  Producer<A, B, T> producer{*shared, map_a, map_b, g, part};
  const bool produces = warp == kConsumerWarps && elect_one();
  if (produces) {
    shared->ring.init(1, kConsumerWarps);
    fence_barrier_init();
    producer.run_to(min(part.begin + kStages, part.end));  // before the block's barrier
  }
  __syncthreads();
  launch_dependents();
  Accumulator<T> sum[kN / 2];  // (64, kN) a warpgroup
  if (produces) producer.run_to(part.end);
  __syncwarp();  // barriers of the cluster take whole warps
  if (warp < kConsumerWarps) consume<SharedOperands<T, A, B, a_major, b_major>>(*shared, part, warp, sum);
  __syncthreads();  // the ring is free
  const int matrix = int(blockIdx.z * gridDim.y) + part.batch;
  shared->with_sums(g.cluster, [&](auto& sums) {
    sums.store(sum, warp, g.gemm.at_batch(matrix), g.vectors, part.row, part.column);
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

// The operand up to the end of a block's part of k. The loop reads one stage more than it multiplies: that
// one is filled with zeros then and not copied.
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
  g.sums.put(int(blockIdx.z), part.batch, part.row + row, part.column + column, warp.sum);
#endif
}

int stages_of(const auto& g) { return int(ceil_div(g.k, 128 / int(sizeof(*g.a.data)))); }
dim3 grid_of(const auto& g, int batch, int cluster, int groups) {
  const int64_t tiles = ceil_div(g.m, kM) * ceil_div(g.n, kN);
  return dim3(unsigned(tiles * cluster), unsigned(batch), unsigned(groups));
}

template <class T, Major a_major, Major b_major>
void launch_wgmma(const Gemm<T>& g, int batch, const BoxOperands<T>& operands, Context& context) {
  constexpr auto kernel = gemm_split_k_kernel<T, a_major, b_major>;
  const int stages = stages_of(g);
  plans::SplitKPlan plan = plans::plan_split_k(batch, g.m, g.n, g.k, int(sizeof(T)), cuda::gpu_here());
  const auto shape = [&] {
    return LaunchShape{.grid = grid_of(g, batch, plan.cluster, plan.groups),
                       .block = dim3(kThreads),
                       .shared_bytes = kSharedBytes,
                       .cluster = plan.cluster};
  };
  // All blocks have to run at the same time. Where a GPU's multiprocessors are grouped so that they hold
  // fewer clusters, these are smaller.
  while (plan.cluster > 1 &&
         plan.blocks() > plan.cluster * launch<kernel>("split_k", shape(), context).clusters_at_once())
    plan.cluster /= 2, plan.groups *= 2;
  launch_splits(g, batch, plan.groups, context, [&](const Result<T>& result, int64_t columns) {
    WgmmaArguments<T> arguments{{int(ceil_div(g.n, kN)), SplitStages(stages, plan.cluster * plan.groups)},
                                operands.a.batch_stride != 0,
                                operands.b.batch_stride != 0,
                                plan.cluster,
                                g,
                                result_vectors(result)};
    arguments.gemm.result = result, arguments.gemm.n = columns;
    launch<kernel>("split_k", shape(), context)(operands.a.map(kM), operands.b.map(kN), arguments);
  });
}

template <class T>
void launch_wgmma(const Gemm<T>& g, int batch, Context& context) {
  RowCopies copies;
  const BoxOperands<T> operands(g, batch, copies, context);
  copies.launch({}, context);
  operands.with_majors([&]<Major a_major, Major b_major>() {
    launch_wgmma<T, a_major, b_major>(g, batch, operands, context);
  });
}

template <class T>
void launch_mma(const Gemm<T>& g, int batch, Context& context) {
  constexpr Takes kTakes = sizeof(T) == 2 ? Takes::any : Takes::along_k;
  const RowsOperands<T> operands = rows_operands<kTakes>(g, batch, context);
  const int stages = stages_of(g);
  const int splits = plans::plan_split_k(batch, g.m, g.n, g.k, int(sizeof(T)), cuda::gpu_here()).groups;
  const auto sums = split_sums(g, batch, splits, context);
  const MmaArguments<T> arguments{{int(ceil_div(g.n, kN)), SplitStages(stages, splits)}, sums, operands};
  operands.template with_directions<kTakes>([&]<bool a_along_k, bool b_along_k>() {
    const LaunchShape shape{grid_of(g, batch, 1, splits), dim3(MmaTiles::kThreads),
                            sizeof(typename MmaKernel<T, a_along_k, b_along_k>::Shared)};
    launch<gemm_split_k_mma_kernel<T, a_along_k, b_along_k>>("split_k", shape, context)(arguments);
  });
  add_splits(sums, g, context);
}

}  // namespace

void gemm_split_k(const GemmProblem& problem, Context& context) {
  run_gemm<Half, BFloat16, int8_t>(problem, context, [&](const auto& g, int batch) {
    cuda::has_wgmma() ? launch_wgmma(g, batch, context) : launch_mma(g, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
