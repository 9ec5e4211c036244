// Level 6 for skinny products: m or n is small, and reading the large operand takes most of the time. What
// changes from `wgmma_specialized`:
//   - the large operand provides the 64 rows of wgmma, whether it is A or B (C^T = B^T A^T); the skinny
//     operand is padded to 16, 32 or 64 columns;
//   - most multiprocessors read until the end: either tiles are narrow enough for each of them to have one,
//     or blocks share k (parts/schedules/shares.cuh);
//   - bytes in flight matter, not reuse: 64 or 80 KB of the large operand are requested before anything else
//     is done;
//   - the large operand is loaded evict-first. If the kernel before left L2 full of modified lines, these
//     lines stay there, and most of their write-back does not compete with the product's loads;
//   - rows that begin at any address are not copied first: 8 warps of the block load them
//     (parts/sources/unaligned_tile.cuh).
//
// On GPUs other than Hopper the same tiles are multiplied by mma.sync (fast/skinny_portable.cuh).
//
// docs/weak_spots.md shows its bandwidth beside cuBLAS's. Without its products, the kernel would take nearly
// as long.
#include "cuda/available.h"
#include "cuda/gemm/fast/skinny_portable.cuh"
#include "cuda/gemm/fast/skinny_sums.cuh"
#include "cuda/gemm/parts/overlaps.cuh"
#include "cuda/gemm/parts/sources/unaligned_tile.cuh"
#include "cuda/gemm/parts/wgmma_kernel.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

using WideTile = SkinnyShape<128>;   // 5 stages
using NarrowTile = SkinnyShape<64>;  // 8 stages

template <class S, class T>
struct Schedule {
  const SkinnyArguments<T>& g;

  template <class Body>
  __device__ __forceinline__ void each_part(Body&& body) const {
    g.shares.each_part(int(blockIdx.x), int(gridDim.x),
                       [&](const Part& part) { body(part, part.first, part.end); });
  }
  __device__ __forceinline__ SkinnyPlace<S> place(const Part& part) const { return {part.tile, g}; }
};

// The producer warps for operands that the TMA cannot read. All their threads load units of 16 bytes into
// registers while the stage that will hold the units is still in use. They store the units when it is free.
// Each thread arrives for itself, because compute-sanitizer does not see that __syncwarp() orders the lanes'
// writes before an arrival by one lane for all.
template <class S, class Source, class T>
__device__ __forceinline__ void produce_units(typename S::Shared& shared, const Schedule<S, T>& schedule) {
  using A = typename Source::X;
  using B = typename Source::Y;
  const SkinnyArguments<T>& g = schedule.g;
  const int thread = int(threadIdx.x) - S::kConsumerThreads;
  UnitCopy<T, A, S::kUnitThreads> large(thread);
  UnitCopy<T, B, S::kUnitThreads> skinny(thread);
  RingPosition<S::kStages> at{0, 1};
  grid_dependency_wait();
  schedule.each_part([&](const Part& part, int begin, int end) {
    const auto place = schedule.place(part);
    FASTGEMM_NO_UNROLL
    for (int step = begin; step < end; ++step) {
      large.load(g.large, place.row, step * A::kK, place.batch);
      skinny.load(g.skinny, place.column, step * B::kK, place.batch);
      wait_phase(&shared.ring.empty[at.stage], at.phase);
      large.store(shared.stage[at.stage]);
      skinny.store(shared.stage[at.stage] + A::kBytes);
      fence_async_shared();
      arrive(&shared.ring.full[at.stage]);
      at.advance();
    }
  });
}

template <class S, class T, Major large_major, Major skinny_major>
__global__ void __launch_bounds__(S::kConsumerThreads + S::kUnitThreads, 1)
    gemm_skinny_kernel(const __grid_constant__ BoxMaps maps, const __grid_constant__ SkinnyArguments<T> g) {
#if FASTGEMM_SM90A
  using Source = BoxSource<T, large_major, S::kM, Read::once, skinny_major, S::kN, Read::often>;
  using Shared = typename S::Shared;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  const Schedule<S, T> schedule{g};
  const int warp = warp_index();
  constexpr int kProducer = Shared::kConsumerWarps;  // the first producer warp
  if (warp == kProducer) init_ring(*shared, maps, g.by_units ? S::kUnitThreads : 1);
  launch_dependents();
  if (S::kShares && g.by_units) {
    __syncthreads();
    if (warp >= kProducer) return produce_units<S, Source>(*shared, schedule);
  } else {
    const Source source{maps, Source::X::kBytes + g.skinny_rows * 128};
    if (warp == kProducer) return produce_parts(*shared, source, schedule);
    meet<Shared>();
  }
  const auto consume = [&]<int columns>() {  // of the skinny operand
    consume_parts<Source, columns / 2>(*shared, schedule, warp, [&](const auto& sum, const Part& part) {
      const auto place = schedule.place(part);
      if (part.first == 0 && part.end == g.shares.steps)
        store_tile<typename Source::Products::Rows>(g, shared->slab[warp].word, sum, place, warp);
      else
        hand_over(g, sum, part, place);
    });
  };
  if (g.skinny_rows == 16)
    consume.template operator()<16>();
  else if (g.skinny_rows == 32)
    consume.template operator()<32>();
  else
    consume.template operator()<64>();
#endif
}

template <class S, class T, Major large_major, Major skinny_major>
__global__ void __launch_bounds__(S::kConsumerThreads, 1)
    gemm_skinny_portable_kernel(const __grid_constant__ SkinnyArguments<T> g) {
#if FASTGEMM_PORTABLE
  FASTGEMM_DYNAMIC_SHARED(unsigned char, ring);
  multiply_shares<S, large_major, skinny_major>(g, ring);
#endif
}

// Both operands. The skinny one is copied if the TMA cannot read it, or cannot read it in whole lines: all
// blocks read it, and blocks that request the same line wait for each other.
template <class T>
struct SkinnyOperands {
  BoxOperand<T> large, skinny;
  bool large_is_b, by_units;

  SkinnyOperands(const Gemm<T>& g, int batch, Context& context) : large_is_b(g.n > g.m) {
    Side<T> of_large = side_a(g, batch), of_skinny = side_b(g, batch);
    if (large_is_b) std::swap(of_large, of_skinny);
    large = operand_in_place(of_large, batch);
    skinny = operand_in_place(of_skinny, batch);
    by_units = !large.readable();
    if (skinny.major == Major::mn && (sizeof(T) != 2 || (!by_units && of_skinny.side < 64)))
      skinny = copied_along(Major::k, of_skinny, batch, context);
    else if (!by_units && !skinny.readable())
      skinny = copied_along(skinny.major, of_skinny, batch, context);
  }

  // Calls body.operator()<large_major, skinny_major>().
  template <bool fused = false, class Body>
  void with_majors(Body&& body) const {
    if constexpr (fused) {
      body.template operator()<Major::k, Major::k>();
    } else {
      const bool large_k = large.major == Major::k;
      if constexpr (sizeof(T) == 2) {
        if (skinny.major == Major::mn)
          return large_k ? body.template operator()<Major::k, Major::mn>()
                         : body.template operator()<Major::mn, Major::mn>();
      }
      large_k ? body.template operator()<Major::k, Major::k>()
              : body.template operator()<Major::mn, Major::k>();
    }
  }
};

template <class S, class T>
plans::SkinnyTiles tiles_of(const SkinnyOperands<T>& o, int batch) {
  static_assert(S::kN == 64);
  return plans::skinny_tiles(S::kM, batch, o.large.side, o.skinny.side, o.large.k, int(sizeof(T)), o.by_units,
                             cuda::gpu_here());
}

template <class S, class T>
SkinnyArguments<T> arguments_of(const Gemm<T>& problem, const SkinnyOperands<T>& o,
                                const plans::SkinnyTiles& tiles, const Epilogue& epilogue, Context& context) {
  using Acc = Accumulator<T>;
  const auto& [large, skinny, large_is_b, by_units] = o;
  const int64_t unit = tiles.whole ? tiles.steps : 1, units = tiles.all * tiles.steps / unit;
  const int64_t blocks = tiles.blocks;
  SkinnyArguments<T> g{problem, large, skinny, large_is_b, by_units};
  g.epilogue = epilogue;
  g.skinny_rows = skinny.major == Major::mn || skinny.side > 32 ? S::kN : skinny.side > 16 ? 32 : 16;
  g.tiles_m = int(tiles.m), g.tiles_n = int(tiles.n);
  g.shares = {int(tiles.steps), int(units / blocks * unit), int(units % blocks), int(unit)};
  if (!tiles.whole)
    g.partials = static_cast<Acc*>(context.allocate(size_t(blocks) * 2 * S::kM * S::kN * sizeof(Acc)));
  return g;
}

// Launches the kernel that adds the partial sums of shared tiles, if there are any.
template <class S, Major large_major, class T>
void add_shares(const SkinnyArguments<T>& g, const plans::SkinnyTiles& tiles, Context& context) {
  using Rows = std::conditional_t<large_major == Major::mn && sizeof(T) != 2, Fragments<T>, InOrder>;
  const int64_t groups = ceil_div(std::min<int64_t>(g.skinny.side, S::kN), 8);
  const LaunchShape shape{dim3(unsigned(tiles.all * S::kConsumers), unsigned(groups)), dim3(128), 0, true};
  if constexpr (S::kShares)
    if (g.partials) launch<gemm_skinny_add_kernel<S, Rows, T>>("skinny_add", shape, context)(g);
}

template <class S, class T>
void launch_tiles(const Gemm<T>& problem, const SkinnyOperands<T>& o, const plans::SkinnyTiles& tiles,
                  const Epilogue& epilogue, Context& context) {
  const SkinnyArguments<T> g = arguments_of<S, T>(problem, o, tiles, epilogue, context);
  const BoxMaps maps = o.by_units ? BoxMaps{} : BoxMaps(o.large, S::kM, o.skinny, g.skinny_rows);
  const int threads = S::kConsumerThreads + (o.by_units ? S::kUnitThreads : 32);
  const LaunchShape shape{dim3(unsigned(tiles.blocks)), dim3(unsigned(threads)), sizeof(typename S::Shared),
                          overlaps_well(problem, o.large.batch)};
  o.template with_majors<kFuses<S>>([&]<Major large_major, Major skinny_major>() {
    if constexpr (S::takes(large_major, skinny_major, sizeof(T))) {
      launch<gemm_skinny_kernel<S, T, large_major, skinny_major>>("skinny", shape, context)(maps, g);
      add_shares<S, large_major>(g, tiles, context);
    }
  });
}

template <class S, class T>
void launch_portable(const Gemm<T>& problem, const SkinnyOperands<T>& o, const plans::SkinnyTiles& tiles,
                     const Epilogue& epilogue, Context& context) {
  static_assert(sizeof(SkinnyRings<S>) <= 99 << 10);
  SkinnyArguments<T> g = arguments_of<S, T>(problem, o, tiles, epilogue, context);
  if (o.by_units) g.skinny_rows = o.skinny.side <= 16 ? 16 : 64;
  const LaunchShape shape{dim3(unsigned(tiles.blocks)), dim3(S::kConsumerThreads), sizeof(SkinnyRings<S>)};
  o.template with_majors<kFuses<S>>([&]<Major large_major, Major skinny_major>() {
    launch<gemm_skinny_portable_kernel<S, T, large_major, skinny_major>>("skinny", shape, context)(g);
    add_shares<S, large_major>(g, tiles, context);
  });
}

template <class Wide, class Narrow, class T>
void gemm_tiles(const Gemm<T>& g, int batch, const Epilogue& epilogue, Context& context) {
  const SkinnyOperands<T> o(g, batch, context);
  const plans::SkinnyTiles wide = tiles_of<Wide>(o, batch);
  if (!cuda::has_wgmma()) return launch_portable<Wide>(g, o, wide, epilogue, context);
  const plans::SkinnyTiles narrow = tiles_of<Narrow>(o, batch);
  plans::narrow_skinny_wins(narrow, wide) && !o.by_units &&
          Narrow::takes(o.large.major, o.skinny.major, sizeof(T))
      ? launch_tiles<Narrow>(g, o, narrow, epilogue, context)
      : launch_tiles<Wide>(g, o, wide, epilogue, context);
}

}  // namespace

void gemm_skinny(const GemmProblem& problem, Context& context) {
  run_gemm<Half, BFloat16, int8_t>(problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (sizeof(T) == 2) {
      if (problem.epilogue.asked())
        return gemm_tiles<Fusing<WideTile>, Fusing<NarrowTile>>(g, batch, problem.epilogue, context);
    }
    gemm_tiles<WideTile, NarrowTile>(g, batch, {}, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
