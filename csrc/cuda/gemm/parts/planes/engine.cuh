// GEMM by planes for any scheme (scheme.cuh). The scheme says what is multiplied, and this file launches it:
// gemm_by_planes<Scheme>(name, problem, context) is the launcher of a scheme's row.
//
//   A, B --[cut_kernel]--> images --[gemm_kernel]--> C --[repair_kernel]--> C
//          cut.cuh                  here                 repair.cuh
//
//   - cut_kernel cuts A and B into planes and writes them as images of shared memory;
//   - gemm_kernel is persistent and warp-specialized, as wgmma_specialized is. Its producers, one warp for
//     each ring, copy images, and so need no tensor maps, swizzles or bounds. GPUs without wgmma run
//     warp_kernel instead (warp_kernel.cuh), which is persistent, too, and copies by cp.async;
//   - repair_kernel, for schemes of floating point, computes again the strips of C with a sum that is not
//     finite.
//
// Stream-K shares the tiles of the last one or two waves evenly among the blocks
// (parts/schedules/stream_k.cuh), and adds their sums in a fixed order. A long k is computed in segments
// (plan.cuh). C is computed in panels where the planes of all of A and B would take more than 2 GiB
// (panels.cuh).
#pragma once

#include <utility>

#include "cuda/available.h"
#include "cuda/gemm/parts/epilogues/blend.cuh"
#include "cuda/gemm/parts/planes/cut.cuh"
#include "cuda/gemm/parts/planes/multiply.cuh"
#include "cuda/gemm/parts/planes/pace.cuh"
#include "cuda/gemm/parts/planes/panels.cuh"
#include "cuda/gemm/parts/planes/plan.cuh"
#include "cuda/gemm/parts/planes/repair.cuh"
#include "cuda/gemm/parts/planes/store.cuh"
#include "cuda/gemm/parts/planes/warp_kernel.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// The work of one producer warp: it fills one ring.
template <class S, int ring>
__device__ __forceinline__ void produce(typename S::Shared& shared, const Arguments<S>& g) {
  constexpr Ring kRing = S::Scheme::kRings[ring];
  constexpr int kBytesA = kRing.planes * S::kPlaneA, kBytesB = kRing.planes * S::kPlaneB;
  const bool elected = elect_one();
  RingPosition<S, ring> at;
  at.phase = 1;  // a new slot counts as empty
  Pace pace(ring == 0 ? g.progress : nullptr);
  Parts parts(g.schedule.work, int(blockIdx.x), int(gridDim.x));
  Part part;
  while (parts.next(part)) {
    const TileOrigin<S> place(part.tile, g.schedule);
    if (lies_outside(g, place) || g.tiles.skips(place.row, place.column)) continue;
    const int64_t tile_a = first_tile_a(g, place.batch * g.batch_a) + place.row / S::kM;
    const int64_t tile_b = first_tile_b(g, place.batch * g.batch_b) + place.column / S::kN;
    const int first = g.segment.first + part.first * kChunk, stages = g.schedule.stages_of(part);
    const int64_t from_a = tile_a * g.segment.all + first, from_b = tile_b * g.segment.all + first;
    for (int sweep = 0; sweep < kRing.sweeps; ++sweep) {
      const unsigned char* a = g.a + from_a * S::kImageA + kRing.first_plane * S::kPlaneA;
      const unsigned char* b = g.b + from_b * S::kImageB + kRing.first_plane * S::kPlaneB;
      FASTGEMM_NO_UNROLL
      for (int i = 0; i < stages; ++i) {
        if constexpr (ring == 0) pace.step();
        wait_phase(at.empty(shared), at.phase);
        // The wait is here and not at the top of the kernel, so that the code before the first copy, which
        // takes long with cold caches, runs while the pre-pass does.
        grid_dependency_wait();
        if (elected) {
          arrive_expecting(at.full(shared), kBytesA + kBytesB);
          load_bytes(at.bytes(shared), a, kBytesA, at.full(shared));
          load_bytes(at.bytes(shared) + kBytesA, b, kBytesB, at.full(shared));
        }
        a += S::kImageA, b += S::kImageB;
        at.advance();
      }
    }
  }
}

// Does what Parts does, but computes each part from its number: the state of Parts would take registers.
class CountedParts {
 public:
  __device__ __forceinline__ CountedParts(const StreamK& plan, int, int) : plan_(plan) {}
  __device__ __forceinline__ bool next(Part& part) { return part_of(plan_, count_++, part); }

 private:
  const StreamK& plan_;
  int count_ = 0;
};

template <class S>
__device__ __forceinline__ void consume(typename S::Shared& shared, const Arguments<S>& g, int warp) {
  typename S::ConsumerLoop loop(shared, warp, g.chunk);
  typename S::Acc sum[S::kSums];  // (64, S::kN), 16 rows per warp
  // With three sums, or with an epilogue, no registers are left for the state of Parts.
  constexpr bool kKeepsParts = S::Scheme::kSums == 1 && !kFuses<typename S::Scheme>;
  std::conditional_t<kKeepsParts, Parts, CountedParts> parts(g.schedule.work, int(blockIdx.x),
                                                             int(gridDim.x));
  Part part;
  while (parts.next(part)) {
    if (skips_tile(g, part)) continue;
    uint32_t scaled = 0;
    if constexpr (S::Scheme::kLoop == Loop::promoting)
      scaled = load_scaled<kStripRows, S::kN>(g, part.tile, kStripRows * warp, 0);
    loop.multiply(sum, g.schedule.stages_of(part));
    if (finishes<S>(g.schedule, sum, part, warp / 4)) finish_strip(g, sum, part.tile, warp, scaled);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) gemm_kernel(const __grid_constant__ Arguments<S> g) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  launch_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kSlots; ++i) {
      init_barrier(&shared->full[i], 1);
      init_barrier(&shared->empty[i], S::kConsumerWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int warp = warp_index();
  if (warp >= S::kConsumerWarps) {
    release_registers<40>();
    [&]<int... ring>(std::integer_sequence<int, ring...>) {
      ((warp == S::kConsumerWarps + ring ? produce<S, ring>(*shared, g) : void()), ...);
    }(std::make_integer_sequence<int, S::kRings>{});
  } else {
    claim_registers<232>();
    grid_dependency_wait();
    consume<S>(*shared, g, warp);
  }
#endif
}

// The arguments of the pre-pass for stages [first, first + stages) of both operands. Allocates their planes.
template <class S>
CutArguments<typename S::Scheme> cut_arguments(const Gemm<typename S::Operand>& p, int batch, int first,
                                               int stages, Context& context) {
  using Scheme = typename S::Scheme;
  const int matrices_a = p.a.batch_stride == 0 ? 1 : batch, matrices_b = p.b.batch_stride == 0 ? 1 : batch;
  const int64_t k = int64_t{first} * Scheme::kStageK;
  const int64_t length = std::min(p.k - k, int64_t{stages} * Scheme::kStageK);
  CutArguments<Scheme> cut{};
  cut.a = make_source<Scheme>(side_a(p, batch).part_of_k(k, length), matrices_a, S::kM, context);
  cut.b = make_source<Scheme>(side_b(p, batch).part_of_k(k, length), matrices_b, S::kN, context);
  cut.matrices_a = matrices_a, cut.matrices_b = matrices_b;
  return cut;
}

// Launches the pre-pass for the operands that `cuts` names. It also clears the flags of the main kernel.
template <class S>
void launch_cut(CutArguments<typename S::Scheme> cut, Cuts cuts, Arguments<S>& g, Context& context) {
  cut.tiles = g.tiles;
  g.batch_a = cut.matrices_a > 1, g.batch_b = cut.matrices_b > 1;
  g.a = cut.a.images, g.b = cut.b.images;
  g.unscale = {cut.a.unscale, cut.b.unscale, cut.a.scaled, cut.b.scaled};
  cut.blocks_a = cuts.a ? cut.matrices_a * cut.a.blocks() : 0;
  const int blocks = cut.blocks_a + (cuts.b ? cut.matrices_b * cut.b.blocks() : 0);
  const bool few_blocks = blocks <= 2 * multiprocessors();
  const auto run = [&]<int words>(int threads) {
    launch<cut_kernel<typename S::Scheme, words>>("cut", {dim3(unsigned(blocks)), dim3(unsigned(threads))},
                                                  context)(cut);
  };
  if (!few_blocks && cut.a.k > 512) return run.template operator()<kManyWords>(256);
  run.template operator()<kFewWords>(!few_blocks ? 256 : cut.a.k > 4096 ? 1024 : 512);
}

// The result of a segment that adds `beta` times the sum of the segments before it. That sum is in the
// workspace, or in C where sums are exact.
template <class T>
Result<T> plus(Result<T> r, const Result<T>& before, Accumulator<T> beta) {
  r.c = before.out, r.c_row_stride = before.row_stride, r.c_col_stride = 1;
  r.c_batch_stride = before.batch_stride;
  r.beta = beta;
  return r;
}

template <class T>
int neighbours_of(const Result<T>& r, int batch, int most) {
  for (int count : {4, 2})
    if (count <= most && count * r.out_bytes() <= 16 &&
        is_aligned(static_cast<const char*>(r.out), size_t(count * r.out_bytes())) &&
        r.row_stride % count == 0 && (batch == 1 || r.batch_stride % count == 0))
      return count;
  return 1;
}

// Launches the main kernel once for each segment of k in [begin, end).
template <class S>
void launch_segments(const char* name, const Gemm<typename S::Operand>& p,
                     const Result<typename S::Operand>& sums, const Plan& plan, int begin, int end, int batch,
                     Arguments<S> g, Context& context) {
  uint32_t *const flags = g.schedule.flags, *const progress = g.progress, *const unfinished = g.unfinished;
  for (int i = begin; i < end; ++i) {
    const bool is_last = i + 1 == plan.segments;
    g.segment = {plan.first(i) - plan.first(begin), plan.first(end) - plan.first(begin), is_last};
    if constexpr (S::Scheme::kLoop == Loop::promoting) {
      g.result = is_last ? p.result : sums;
      if (i > 0) g.result = plus(g.result, sums, g.result.alpha);
    } else {
      g.result = i == 0 ? p.result : plus(p.result, p.result, 1);
    }
    // Where a block has a single tile, its storing code is read from DRAM and runs once. Stores of pairs have
    // a third of the instructions that stores of four have.
    g.neighbours = neighbours_of(g.result, batch, plan.tiles <= multiprocessors() ? 2 : 4);
    g.schedule.stages = plan.stages(i), g.schedule.work = plan.work(i);
    if constexpr (S::Scheme::kLoop == Loop::promoting)
      g.chunk = S::Scheme::chunk(plan.all, double(plan.tiles) / multiprocessors());
    if (flags) g.schedule.flags = flags + i * multiprocessors() * S::kGroups;
    if (progress) g.progress = progress + i * multiprocessors();
    if (unfinished) g.unfinished = unfinished + i * plan.tiles * S::kStrips;
    const LaunchShape shape{dim3(unsigned(plan.blocks(i))), dim3(S::kThreads), sizeof(typename S::Shared),
                            true};
    if constexpr (S::kByWarps)
      launch<warp_kernel<S>>(name, shape, context)(g);
    else
      launch<gemm_kernel<S>>(name, shape, context)(g);
  }
}

// Computes a product. The planes of all of m and n, and of a group of k's segments, are in memory at a time.
template <class S>
void launch_product(const char* name, const Gemm<typename S::Operand>& problem, int batch, Cuts cuts,
                    const typename S::Scheme::Tiles& tiles, const EpilogueOf<typename S::Scheme>& epilogue,
                    ReusedWorkspace& workspace) {
  constexpr bool kRepairs = S::Scheme::kLoop == Loop::promoting;
  const Plan plan = Plan::of<S>(problem, batch);
  const int group = plan.segments_at_a_time<S>(problem, batch);
  if (group < plan.segments) cuts = {true, true};
  workspace.begin_again();  // planes are allocated first, so that those of the panel before keep their place
  auto cut = cut_arguments<S>(problem, batch, 0, plan.first(group), workspace);

  // An element that is repaired after it was stored needs its sum and c, which the store must not overwrite.
  const bool scales = problem.result.alpha != 1 || problem.result.beta != 0;
  const bool keeps_sums = kIsInvariant<typename S::Scheme> && scales;
  const bool in_workspace = plan.segments > 1 || keeps_sums;
  Gemm<typename S::Operand> p = problem;
  if constexpr (kFuses<typename S::Scheme>) p.result.beta = 0;  // the epilogue adds c
  Result<typename S::Operand> sums{};
  if constexpr (kRepairs) {
    if (in_workspace) sums = sums_in_workspace(problem, batch, workspace);
  }
  const bool blends = kRepairs && in_workspace && (keeps_sums || p.result.beta != 0);
  if (blends) p.result = sums;

  Arguments<S> g{};
  g.m = int(p.m), g.n = int(p.n), g.tiles = tiles;
  if constexpr (kFuses<typename S::Scheme>) g.finishing = {epilogue, problem.result};
  g.schedule.tiles_m = int(ceil_div(p.m, S::kM)), g.schedule.tiles_n = int(ceil_div(p.n, S::kN));
  if constexpr (S::kLower) {
    const auto triangle = TrianglePlaces<S>::of(g.schedule.tiles_m, g.schedule.tiles_n);
    g.schedule.tiles_m = triangle.tiles_m, g.schedule.tiles_n = triangle.tiles_n;
  }
  const auto allocate = [&]<class T>(T*& p, int64_t count) {
    if (count > 0) p = static_cast<T*>(workspace.allocate(size_t(count) * sizeof(T)));
  };
  const int64_t strips = plan.tiles * S::kStrips;
  const int handed_over = plan.shares() ? plan.segments * multiprocessors() * S::kGroups : 0;
  const int progress = S::kPaces && plan.paces() ? plan.segments * multiprocessors() : 0;
  cut.flag_count = handed_over + progress;
  allocate(cut.flags, cut.flag_count);
  if (handed_over > 0) g.schedule.flags = cut.flags;
  if (progress > 0) g.progress = cut.flags + handed_over;
  constexpr int kBlockSums = S::Scheme::kSums * S::kM * S::kN;
  allocate(g.schedule.partials, handed_over > 0 ? int64_t{multiprocessors()} * kBlockSums : 0);
  allocate(g.unfinished, kRepairs ? plan.segments * strips : 0);
  for (int begin = 0; begin < plan.segments; begin += group) {
    const int end = std::min(begin + group, plan.segments);
    if (begin > 0) {
      workspace.begin_again();
      cut =
          cut_arguments<S>(problem, batch, plan.first(begin), plan.first(end) - plan.first(begin), workspace);
    }
    launch_cut(cut, cuts, g, workspace);
    launch_segments(name, p, sums, plan, begin, end, batch, g, workspace);
  }
  if constexpr (kRepairs) {
    const int64_t blocks = std::min<int64_t>(strips, 2 * multiprocessors());
    // Strips depend only on the size of tiles, not on the kernel that computed them.
    using Tile = std::conditional_t<S::kByWarps, Shape<typename S::Scheme, S::kN>, S>;
    static_assert(Tile::kM == S::kM && Tile::kStrips == S::kStrips);
    launch<repair_kernel<Tile>>("repair", {dim3(unsigned(blocks)), dim3(S::kN), 0, true}, workspace)(
        kFuses<typename S::Scheme> ? problem : p, g.schedule, g.unfinished, strips, plan.segments, epilogue);
    if (blends) blend(problem, sums, batch, workspace);
  }
}

// Computes C panel by panel.
template <class S, class T>
void launch_panels(const char* name, const Gemm<T>& g, int batch, const typename S::Scheme::Tiles& tiles,
                   const EpilogueOf<typename S::Scheme>& epilogue, ReusedWorkspace& workspace) {
  const Panels panels = Panels::of<S>(g, batch);
  for (int i = 0; i < panels.outer.parts; ++i)
    for (int j = 0; j < panels.inner.parts; ++j)
      launch_product<S>(name, panels.at<S>(g, i, j), batch, panels.cuts(j),
                        tiles.panel(panels.row<S>(i, j), panels.column<S>(i, j)),
                        epilogue.template at<T>(panels.row<S>(i, j), panels.column<S>(i, j)), workspace);
}

// Divides a batch into parts whose planes are in memory at the same time, and calls launch_part(matrices,
// how many, workspace) for each. The planes of a matrix take `bytes`.
template <class T, class Launch>
void in_batch_parts(const Gemm<T>& g, int batch, int64_t bytes, Context& context, Launch&& launch_part) {
  const int part = int(std::clamp<int64_t>(most_plane_bytes() / bytes, 1, batch));
  ReusedWorkspace workspace(context);
  for (int first = 0; first < batch; first += part)
    launch_part(g.at_batch(first), std::min(part, batch - first), workspace);
}

// Computes a product of any size. With wgmma it takes wide or narrow tiles, whichever are predicted to be
// faster.
template <class Scheme, class T>
void gemm_in_parts(const char* name, const Gemm<T>& all, int batch, const EpilogueOf<Scheme>& epilogue,
                   Context& context) {
  using Wide = Shape<Scheme, Scheme::kWideN>;
  using Narrow = Shape<Scheme, plans::kNarrowPlanes>;
  static_assert(Wide::kM == plans::kPlaneM);
  using ByWarps = WarpShape<Scheme>;
  if (!cuda::has_wgmma())
    return in_batch_parts(all, batch, Panels::bytes<ByWarps>(all), context,
                          [&](const Gemm<T>& g, int count, ReusedWorkspace& workspace) {
                            launch_panels<ByWarps>(name, g, count, {}, epilogue, workspace);
                          });
  in_batch_parts(all, batch, Panels::bytes<Wide>(all), context,
                 [&](const Gemm<T>& g, int count, ReusedWorkspace& workspace) {
                   plans::narrow_planes_win(count, g.m, g.n, g.k, Scheme::kTiles, multiprocessors(),
                                            !kIsInvariant<Scheme>)
                       ? launch_panels<Narrow>(name, g, count, {}, epilogue, workspace)
                       : launch_panels<Wide>(name, g, count, {}, epilogue, workspace);
                 });
}

// Computes the lower triangle of a product by wgmma, if its planes fit into memory and its k is one segment.
// Otherwise does nothing and returns false.
template <class Scheme, class T>
bool gemm_of_triangle(const char* name, const Gemm<T>& all, int batch, Context& context) {
  using Wide = LowerShape<Scheme, Scheme::kWideN>;
  using Narrow = LowerShape<Scheme, plans::kNarrowPlanes>;
  const bool in_one = Panels::bytes<Wide>(all) <= most_plane_bytes() && Plan::of<Wide>(all, 1).segments == 1;
  if (!cuda::has_wgmma() || !in_one) return false;
  in_batch_parts(all, batch, Panels::bytes<Wide>(all), context,
                 [&](const Gemm<T>& g, int count, ReusedWorkspace& workspace) {
                   plans::narrow_planes_win(count, g.m, g.n / 2, g.k, Scheme::kTiles, multiprocessors())
                       ? launch_product<Narrow>(name, g, count, {true, true}, {}, {}, workspace)
                       : launch_product<Wide>(name, g, count, {true, true}, {}, {}, workspace);
                 });
  return true;
}

// The launcher of a scheme's row.
template <class Scheme>
void gemm_by_planes(const char* name, const GemmProblem& problem, Context& context) {
  const EpilogueOf<Scheme> epilogue(problem.epilogue);
  run_gemm<typename Scheme::Operand>(problem, context, [&](const auto& g, int batch) {
    gemm_in_parts<Scheme>(name, g, batch, epilogue, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET::planes
