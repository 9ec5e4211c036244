// scaled_wgmma for few rows of C, whose time is that of reading b once. What changes from it:
//   - for up to 128 rows, the columns of C provide the rows of wgmma, and a tile has no more rows of C than
//     are needed: 16, 64 or 128. For more rows a tile has 128 x 128 numbers;
//   - a block computes one tile, or a part of its k, and all blocks begin at once. The tile and the parts are
//     chosen so that there are about as many blocks as multiprocessors (fp8/skinny_tile.h), so that all of
//     them read b until the end;
//   - the blocks of a cluster share the k of a tile, and add their sums in shared memory
//     (parts/schedules/cluster_sums.cuh): no sums go through global memory;
//   - a bias, an activation and c are applied before the results are rounded (parts/stores/staged_rows.cuh).
//
//   b, k along rows    | 64 to 256 rows of b: the columns of C | next block ...
//   k                  | block 0 of a cluster | block 1 | ...
#include <stdexcept>

#include "cuda/gemm/fp8/scaled_shape.cuh"
#include "cuda/gemm/fp8/skinny_tile.h"
#include "cuda/gemm/parts/schedules/cluster_sums.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/parts/stores/staged_rows.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <int ROWS, int COLUMNS, int SPLITS, bool TURNED, Scaling SCALING>
struct SkinnyShape {
  static constexpr bool kTurned = TURNED;
  // A thread has two products of 64 registers each, and the sums. The producer's warpgroup leaves it its own.
  static constexpr bool kBig = ROWS == 128 && COLUMNS == 128;
  static constexpr int kM = ROWS, kN = COLUMNS, kSplits = SPLITS, kWidth = COLUMNS;
  static constexpr Scaling kScaling = SCALING;
  [[maybe_unused]] static constexpr int kGroup = 128;
  static constexpr bool kReadsXOnce = TURNED;
  static constexpr int kConsumers = ROWS / 64, kConsumerWarps = 4 * kConsumers;
  static constexpr int kConsumerThreads = 32 * kConsumerWarps;
  // A producer warp follows the consumers. In a cluster three idle warps fill up its warpgroup.
  static constexpr int kThreads = kConsumerThreads + (SPLITS > 1 || kBig ? 128 : 32);
  static constexpr int kAtOnce = COLUMNS == 16 ? 4 : ROWS * COLUMNS <= 128 * 64 || kBig ? 2 : 1;  // products
  static constexpr int kSums = COLUMNS / 2, kStored = COLUMNS / SPLITS;  // columns that a block stores
  static constexpr int kStageBytes = (ROWS + COLUMNS) * 128 + ScaleBoxes<SCALING, ROWS, COLUMNS, 128>::kRoom;
  static constexpr int kStages = plans::skinny_stages({ROWS, COLUMNS, SPLITS, TURNED}, kStageBytes);
  using Sums = ClusterSums<float, SPLITS, 1, COLUMNS>;
  using Staged = SummedTile<1, kStored, TURNED>;
  static_assert(kConsumers * Staged::kBytes <= kStages * kStageBytes);

  struct Partial {
    typename Sums::Shared sums[kConsumers];
  };
  struct None {};
  struct Shared {
    unsigned char stage[kStages][kStageBytes];
    RingBarriers<kStages> ring;
    [[no_unique_address]] std::conditional_t<SCALING == Scaling::sums, LineScales<kStored>[kConsumers][2],
                                             None> scales;
    [[no_unique_address]] std::conditional_t<(SPLITS > 1), Partial, None> partial;
  };
  static_assert(sizeof(Shared) <= 227 << 10);
};

struct SkinnyArguments {
  Gemm<Out16> gemm;
  SplitStages stages;
  ResultVectors vectors;
  Epilogue epilogue;
};

// Stores the sums of a warpgroup: rows of X from `x`, and of Y from `y`.
template <class S>
__device__ __forceinline__ void store_sums(typename S::Shared& shared, const SkinnyArguments& g,
                                           const float (&sum)[1][S::kStored / 2], int x, int y) {
  const int warpgroup = warp_index() / 4;
  unsigned char* const staged = shared.stage[0] + warpgroup * S::Staged::kBytes;
  constexpr int kAll = 1 + S::kConsumers;    // barriers 1 to kConsumers are those of warpgroups
  named_barrier(kAll, S::kConsumerThreads);  // all warps have read the last stage
  S::Staged::stage(staged, sum);
  named_barrier(1 + warpgroup, 128);
  with_stored_type(g.gemm.result, [&]<class Out>() {
    S::Staged::template store<Out>(staged, g.gemm, g.epilogue, g.vectors, S::kTurned ? y : x,
                                   S::kTurned ? x : y);
  });
}

template <class S, class E>
__device__ __forceinline__ void multiply_tile(typename S::Shared& shared, const SkinnyArguments& g,
                                              const OperandScales& scales, int begin, int end, int x, int y) {
  using Source = PromotedSource<E, S::kM, S::kN, S::kScaling, 128>;
  const int warp = warp_index(), row = x + 64 * (warp / 4);
  typename Source::template Consumer<S> consumer(shared, warp);
  float sum[1][S::kSums], product[S::kAtOnce][S::kSums];
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kSums; ++i) sum[0][i] = 0;
  const auto finish = [&](auto& sums, int column) {
    if constexpr (S::kScaling == Scaling::sums) {
      LineScalesCopy<S::kStored> copy(shared.scales);
      copy.template multiply<S::kTurned>(sums[0]);
    }
    store_sums<S>(shared, g, sums, row, column);
  };
  const int split = S::kSplits > 1 ? cluster_rank() : 0, column = y + split * S::kStored;
  if constexpr (S::kScaling == Scaling::sums)
    LineScalesCopy<S::kStored>(shared.scales).begin(scales.x, scales.y, row, column);
  int left = end - begin;
  FASTGEMM_NO_UNROLL
  for (; left >= S::kAtOnce; left -= S::kAtOnce) consumer.multiply_stages(sum[0], product);
  FASTGEMM_NO_UNROLL
  for (; left > 0; --left) consumer.template multiply<false>(sum[0], product[0]);
  if constexpr (S::kSplits > 1) {
    float mine[1][S::kStored / 2];
    S::Sums::add(shared.partial.sums[warp / 4], sum, mine);
    finish(mine, column);
  } else {
    finish(sum, column);
  }
}

template <class S, class E>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_scaled_skinny_kernel(const __grid_constant__ BoxMaps maps, const __grid_constant__ SkinnyArguments g,
                              const __grid_constant__ OperandScales scales) {
#if FASTGEMM_SM90A
  using Source = PromotedSource<E, S::kM, S::kN, S::kScaling, 128>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  const int warp = warp_index(), split = int(blockIdx.x) % S::kSplits;
  const int x = int(blockIdx.x) / S::kSplits * S::kM, y = int(blockIdx.y) * S::kN;
  const int begin = g.stages.begin(split), end = g.stages.begin(split + 1);
  launch_dependents();
  if constexpr (S::kSplits > 1) S::Sums::begin(shared->partial.sums);
  typename Source::template Producer<S> producer(*shared, maps, scales);
  const StageOrigin from{x, y, 0, 0};
  const int first_end = min(begin + S::kStages, end);
  const bool produces = warp == S::kConsumerWarps && elect_one();
  if (produces) {
    shared->ring.init(Source::kArrivals, S::kConsumerWarps);
    fence_barrier_init();
    prefetch_map(&maps.x), prefetch_map(&maps.y);
    grid_dependency_wait();
    producer.fill(from, begin, first_end, true);  // before the block's barrier
  }
  __syncthreads();
  if (warp >= S::kConsumerWarps) {
    if constexpr (S::kBig) release_registers<40>();
    if (produces) producer.fill(from, first_end, end, true);
    return;
  }
  if constexpr (S::kBig) claim_registers<216>();
  grid_dependency_wait();
  multiply_tile<S, E>(*shared, g, scales, begin, end, x, y);
#endif
}

template <class S>
void launch_skinny(const GemmProblem& p, const Gemm<Out16>& g, Context& context) {
  const auto codes = [](const ConstMatrix& m) { return static_cast<const int8_t*>(m.data); };
  RowCopies copies;
  const int64_t extents = std::min({p.m, p.n, p.k});
  Side<int8_t> of_x{codes(p.b), p.n, p.k, p.b.col_stride, p.b.row_stride, 0};
  Side<int8_t> of_y{codes(p.a), p.m, p.k, p.a.row_stride, p.a.col_stride, 0};
  ScaledLines scales_x{p.scales_b.transposed(), p.n}, scales_y{p.scales_a, p.m};
  if (!S::kTurned) std::swap(of_x, of_y), std::swap(scales_x, scales_y);
  const BoxOperand<int8_t> x = box_operand(of_x, 1, extents, false, copies, context);
  const BoxOperand<int8_t> y = box_operand(of_y, 1, extents, false, copies, context);
  const OperandScales scales = operand_scales<S>(scales_x, scales_y, p.k, context);
  copies.launch({}, context);
  const SkinnyArguments arguments{g, SplitStages(plans::specialized_stages(p.k, 1), S::kSplits),
                                  result_vectors(g.result), p.epilogue};
  const dim3 grid(unsigned(ceil_div(of_x.side, int64_t{S::kM}) * S::kSplits),
                  unsigned(ceil_div(of_y.side, int64_t{S::kN})));
  const LaunchShape shape{grid, dim3(S::kThreads), sizeof(typename S::Shared), true, S::kSplits};
  launch<gemm_scaled_skinny_kernel<S, Plain>>("scaled_skinny", shape, context)(BoxMaps(x, S::kM, y, S::kN),
                                                                               arguments, scales);
}

}  // namespace

void gemm_scaled_skinny(const GemmProblem& given, Context& context) {
  const GemmProblem p = by_rows(given);
  const bool by_blocks = p.scales_a.block_cols < p.k || p.scales_b.block_rows < p.k;
  const plans::SkinnyTile tile = plans::plan_skinny(p.m, p.n, p.k, by_blocks, multiprocessors()).tile;
  const Gemm<Out16> g = gemm_of<Out16>(p);
  const auto run = [&]<int ROWS, int COLUMNS, int SPLITS, bool TURNED>() {
    constexpr Scaling kBlocks = TURNED ? Scaling::blocks_by_columns : Scaling::blocks;
    by_blocks ? launch_skinny<SkinnyShape<ROWS, COLUMNS, SPLITS, TURNED, kBlocks>>(p, g, context)
              : launch_skinny<SkinnyShape<ROWS, COLUMNS, SPLITS, TURNED, Scaling::sums>>(p, g, context);
  };
#define FASTGEMM_SKINNY(...) \
  if (tile == plans::SkinnyTile{__VA_ARGS__}) return run.operator()<__VA_ARGS__>();
  FASTGEMM_SKINNY_TILES(FASTGEMM_SKINNY)
#undef FASTGEMM_SKINNY
  throw std::logic_error("fastgemm: scaled_skinny has no tile for this product");
}

}  // namespace fastgemm::FASTGEMM_TARGET
