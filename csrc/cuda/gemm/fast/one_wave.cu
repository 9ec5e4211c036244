// Level 6 for products of ordinary size, whose tiles all begin at once. What changes from wgmma_specialized:
//   - a block computes one tile. The tile is chosen so that there are about as many tiles as
//     multiprocessors: 64 to 192 rows, 32 to 192 columns (predict/one_wave_plan.h);
//   - blocks that begin one after another share the tile of C's longer side, because the shorter side runs
//     fastest in the grid;
//   - one warpgroup has all rows of the tile, in blocks of 64 (parts/main_loop.cuh), so no registers have to
//     move between warpgroups;
//   - if even small tiles leave multiprocessors idle, the blocks of a cluster share the k of a tile. They add
//     their sums in shared memory (parts/schedules/cluster_sums.cuh), without a second kernel;
//   - if there are more tiles than multiprocessors, the rings of stages are so small that two blocks fit on
//     one multiprocessor, and one multiplies while the other stores;
//   - a block makes its barriers and fetches its descriptors while the kernel before ends (programmatic
//     dependent launch), and then waits for that kernel's results;
//   - the shorter side of C provides the rows of wgmma. If that is n, the block computes a tile of C^T, which
//     is turned in shared memory on its way out (parts/stores/staged_rows.cuh).
//
// Method: cuBLAS takes clusters for these sizes, whose blocks load an operand by multicast. Here neighbours
// find a shared tile in L2, and no block waits for another.
//
// Two ideas were measured on an H200 and left out. Pairs of blocks that load Y for each other by multicast
// take 1.06 times as long in the mean of 176 products and tiles. They gain only if the rows of an operand do
// not begin at multiples of 128 bytes (2000 x 1000 x 1000: 1.17). Blocks that compute the next tile while
// they store one gain 1.1 to 1.3 if k <= 128 and C is large. In these cases `wgmma_boxes` is faster still.
#include <stdexcept>

#include "cuda/available.h"
#include "cuda/gemm/parts/main_loop.cuh"
#include "cuda/gemm/parts/schedules/cluster_sums.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/parts/stores/staged_rows.cuh"
#include "cuda/gemm/predict/one_wave_plan.h"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kConsumerWarps = 4;

template <int ROWS, int COLUMNS, int SPLITS, int RESIDENT>
struct Tile {
  static constexpr int kRows = ROWS, kColumns = COLUMNS, kSplits = SPLITS, kBlocks = ROWS / 64;
  static constexpr int kResident = RESIDENT;  // blocks on a multiprocessor
  static constexpr int kStageBytes = (ROWS + COLUMNS) * 128;
  static constexpr int kStages = plans::wave_stages({ROWS, COLUMNS, SPLITS, RESIDENT});
  static constexpr int kStored = COLUMNS / SPLITS;  // columns that a block stores
  // A producer warp follows the consumers. In a cluster three idle warps fill up its warpgroup.
  static constexpr int kThreads = 32 * kConsumerWarps + (SPLITS > 1 ? 128 : 32);
  static constexpr int kStagedBytes =
      std::max(SummedTile<kBlocks, kStored, false>::kBytes, SummedTile<kBlocks, kStored, true>::kBytes);

  struct Ring {
    unsigned char stage[kStages][kStageBytes];  // (kRows, kK) of X, then (kColumns, kK) of Y
    RingBarriers<kStages> barriers;
  };
  static_assert(kStagedBytes <= kStages * kStageBytes);
};

template <class T, class S, bool splits = (S::kSplits > 1)>
struct Shared : S::Ring {
  using Sums = ClusterSums<Accumulator<T>, S::kSplits, S::kBlocks, S::kColumns>;
  typename Sums::Shared partial[1];
};
template <class T, class S>
struct Shared<T, S, false> : S::Ring {};

struct Maps {
  TensorMap x, y;
};

template <class T>
struct Arguments {
  Gemm<T> gemm;
  bool turned;           // X is B: tiles are those of C^T
  int batch_x, batch_y;  // 0 if the batch shares the operand
  SplitStages stages;
  ResultVectors vectors;
  bool plain;  // results of T are sums as they are, without alpha, c or an epilogue
  Epilogue epilogue;
};

// Stores the sums of a warpgroup, which begin at (x, y) of C, or of C^T if the tile is turned.
template <bool turned, class S, class T>
__device__ __forceinline__ void store_tile(unsigned char* staged, const Arguments<T>& g, const Gemm<T>& gemm,
                                           const Accumulator<T> (&sum)[S::kBlocks][S::kStored / 2], int x,
                                           int y) {
  const int row = turned ? y : x, column = turned ? x : y;
  const auto meet = [] { named_barrier(1, 32 * kConsumerWarps); };
  meet();  // all warps have read the last stage
  if constexpr (kIsHalf<T>) {
    if (g.plain) {
      using Rounded = RoundedTile<T, S::kBlocks, S::kStored, turned>;
      Rounded::stage(staged, sum);
      meet();
      return Rounded::store(staged, gemm, g.vectors, row, column);
    }
  }
  using Summed = SummedTile<S::kBlocks, S::kStored, turned>;
  Summed::stage(staged, sum);
  meet();
  with_stored_type(gemm.result, [&]<class Out>() {
    Summed::template store<Out>(staged, gemm, g.epilogue, g.vectors, row, column);
  });
}

template <class S, class T, Major x_major, Major y_major>
__global__ void __launch_bounds__(S::kThreads, S::kResident)
    gemm_one_wave_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Arguments<T> g) {
#if FASTGEMM_SM90A
  using E = TensorCoreElement<T>;
  using X = OperandTile<E, x_major, S::kRows>;
  using Y = OperandTile<E, y_major, S::kColumns>;
  using Block = Shared<T, S>;
  FASTGEMM_DYNAMIC_SHARED(Block, shared);
  const int warp = warp_index(), batch = int(blockIdx.z);
  const int split = int(blockIdx.x) % S::kSplits;
  const int x = int(blockIdx.x) / S::kSplits * S::kRows, y = int(blockIdx.y) * S::kColumns;
  const int begin = g.stages.begin(split), end = g.stages.begin(split + 1);
  launch_dependents();
  if constexpr (S::kSplits > 1) Block::Sums::begin(shared->partial);
  StageProducer<S::kStages, S::kStageBytes, X, Y> producer(shared->stage[0], shared->barriers, maps.x,
                                                           maps.y);
  const StageOrigin from{x, y, batch * g.batch_x, batch * g.batch_y};
  const int first_end = min(begin + S::kStages, end);
  const bool produces = warp == kConsumerWarps && elect_one();
  if (produces) {
    shared->barriers.init(1, kConsumerWarps);
    fence_barrier_init();
    prefetch_map(&maps.x), prefetch_map(&maps.y);
    grid_dependency_wait();
    producer.fill(from, begin, first_end, true);  // before the block's barrier
  }
  __syncthreads();
  if (warp >= kConsumerWarps) {
    if (produces) producer.fill(from, first_end, end, true);
    return;
  }
  using Products = RowBlocks<E, X, Y, x_major, y_major>;
  WgmmaConsumer<S::kStages, S::kStageBytes, Products> consumer(shared->barriers, shared->stage[0], warp);
  Accumulator<T> sum[S::kBlocks][S::kColumns / 2];
  FASTGEMM_NO_UNROLL
  for (int step = begin; step < end; ++step) consumer.multiply(sum, step > begin, [] {});
  consumer.finish(sum);
  const Gemm<T> gemm = g.gemm.at_batch(batch);
  const auto store = [&](const auto& sums, int y0) {
    g.turned ? store_tile<true, S>(shared->stage[0], g, gemm, sums, x, y0)
             : store_tile<false, S>(shared->stage[0], g, gemm, sums, x, y0);
  };
  if constexpr (S::kSplits > 1) {
    Accumulator<T> mine[S::kBlocks][S::kStored / 2];
    Block::Sums::add(shared->partial[0], sum, mine);
    store(mine, y + split * S::kStored);
  } else {
    store(sum, y);
  }
#endif
}

template <class S, class T, Major x_major, Major y_major>
void launch_tiles(const BoxOperand<T>& x, const BoxOperand<T>& y, int batch, const Arguments<T>& arguments,
                  Context& context) {
  const dim3 grid(unsigned(ceil_div(x.side, S::kRows) * S::kSplits), unsigned(ceil_div(y.side, S::kColumns)),
                  unsigned(batch));
  const LaunchShape shape{grid, dim3(S::kThreads), sizeof(Shared<T, S>), true, S::kSplits};
  launch<gemm_one_wave_kernel<S, T, x_major, y_major>>("one_wave", shape, context)(
      Maps{x.map(S::kRows), y.map(S::kColumns)}, arguments);
}

template <class T>
void launch_one_wave(const Gemm<T>& g, int batch, const Epilogue& epilogue, Context& context) {
  RowCopies copies;
  Side<T> side_x = side_a(g, batch), side_y = side_b(g, batch);
  const bool turned = g.n < g.m;
  if (turned) std::swap(side_x, side_y);
  const int64_t extents = std::min({g.m, g.n, g.k});
  const BoxOperand<T> x = box_operand(side_x, batch, extents, false, copies, context);
  const BoxOperand<T> y = box_operand(side_y, batch, extents, false, copies, context);
  copies.launch({}, context);
  const plans::WaveProblem problem =
      plans::wave_problem(batch, g.m, g.n, g.k, sizeof(T), g.result.out_bytes());
  const bool along_k = x.major == Major::k && y.major == Major::k;
  const plans::WaveTile tile = plans::plan_one_wave(problem, along_k, cuda::gpu_here()).tile;
  const Arguments<T> arguments{
      g,
      turned,
      x.batch_stride != 0,
      y.batch_stride != 0,
      SplitStages(int(problem.stages), tile.splits),
      result_vectors(g.result),
      g.result.alpha == 1 && g.result.beta == 0 && !g.result.wide && !epilogue.asked(),
      epilogue};
  with_majors<T>(x.major, y.major, [&]<Major x_major, Major y_major>() {
#define FASTGEMM_WAVE_TILE(...)             \
  if (tile == plans::WaveTile{__VA_ARGS__}) \
    return launch_tiles<Tile<__VA_ARGS__>, T, x_major, y_major>(x, y, batch, arguments, context);
    if constexpr (x_major == Major::k && y_major == Major::k) {
      FASTGEMM_WAVE_TILES(FASTGEMM_WAVE_TILE)
    } else {
      FASTGEMM_WAVE_TILES_OF_BOXES(FASTGEMM_WAVE_TILE)
    }
    throw std::logic_error("fastgemm: one_wave has no tile for this product");
#undef FASTGEMM_WAVE_TILE
  });
}

}  // namespace

void gemm_one_wave(const GemmProblem& problem, Context& context) {
  const Epilogue epilogue = by_rows(problem).epilogue;
  run_gemm<float, Half, BFloat16, int8_t>(
      problem, context, [&](const auto& g, int batch) { launch_one_wave(g, batch, epilogue, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
