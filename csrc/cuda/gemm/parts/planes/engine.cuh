// GEMM by a scheme (scheme.cuh) that says what to multiply. Three launches:
//   - pack_kernel cuts A and B into planes and writes them as images of shared memory (pack.cuh);
//   - gemm_kernel, here, persistent and warp-specialized as in wgmma_specialized. Its producers copy images,
//     one warp for each ring; no tensor maps, no swizzle, no edges;
//   - repair_kernel computes again what is not finite (repair.cuh), where a scheme is of floating point.
// Tiles of the last one to two waves are shared evenly among the blocks (parts/stream_k.cuh), their sums
// added in a fixed order. Long k comes in segments (plan.cuh), C in panels where the planes of all of A and B
// would take more than 2 GiB (panels.cuh).
#pragma once

#include <utility>

#include "cuda/gemm/parts/blend.cuh"
#include "cuda/gemm/parts/planes/cut.cuh"
#include "cuda/gemm/parts/planes/multiply.cuh"
#include "cuda/gemm/parts/planes/pace.cuh"
#include "cuda/gemm/parts/planes/pieces.cuh"
#include "cuda/gemm/parts/planes/plan.cuh"
#include "cuda/gemm/parts/planes/repair.cuh"
#include "cuda/gemm/parts/planes/store.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// One warp fills one ring.
template <class S, int ring>
__device__ __forceinline__ void produce(typename S::Shared& shared, const Arguments<S>& g) {
  constexpr Ring kRing = S::Scheme::kRings[ring];
  constexpr int kBytesA = kRing.planes * S::kPlaneA, kBytesB = kRing.planes * S::kPlaneB;
  const bool elected = elect_one();
  RingPosition<S, ring> at;
  at.phase = 1;  // a fresh slot counts as emptied
  Pace pace(ring == 0 ? g.progress : nullptr);
  Parts parts(g.schedule.work, int(blockIdx.x), int(gridDim.x));
  Part part;
  while (parts.next(part)) {
    const TileOrigin<S> place(part.tile, g.schedule);
    const int64_t tile_a = int64_t(place.batch * g.batch_a) * g.schedule.tiles_m + place.row / S::kM;
    const int64_t tile_b = int64_t(place.batch * g.batch_b) * g.schedule.tiles_n + place.column / S::kN;
    const int first = g.segment.first + part.first * kChunk, stages = g.schedule.stages_of(part);
    const int64_t from_a = tile_a * g.segment.all + first, from_b = tile_b * g.segment.all + first;
    for (int sweep = 0; sweep < kRing.sweeps; ++sweep) {
      const unsigned char* a = g.a + from_a * S::kImageA + kRing.first_plane * S::kPlaneA;
      const unsigned char* b = g.b + from_b * S::kImageB + kRing.first_plane * S::kPlaneB;
      FASTGEMM_NO_UNROLL
      for (int i = 0; i < stages; ++i) {
        if constexpr (ring == 0) pace.step();
        wait_phase(at.empty(shared), at.phase);
        // Not sooner: on cold caches what comes before the first copy takes more than a microsecond.
        wait_for_kernel_before();
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

template <class S>
__device__ __forceinline__ void consume(typename S::Shared& shared, const Arguments<S>& g, int warp) {
  typename S::ConsumerLoop loop(shared, warp, g.chunk);
  typename S::Acc sum[S::kSums];  // (64, S::kN), a warp 16 rows of them
  Parts parts(g.schedule.work, int(blockIdx.x), int(gridDim.x));
  Part part;
  while (parts.next(part)) {
    uint32_t scaled = 0;
    if constexpr (S::Scheme::kLoop == Loop::promoting) scaled = load_scaled(g, part.tile, warp);
    loop.multiply(sum, g.schedule.stages_of(part));
    if (finishes<S>(g.schedule, sum, part, warp / 4)) finish_strip(g, sum, part.tile, warp, scaled);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) gemm_kernel(const __grid_constant__ Arguments<S> g) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  let_next_kernel_begin();
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
    wait_for_kernel_before();
    consume<S>(*shared, g, warp);
  }
#endif
}

// Both operands' stages [first, first + stages) of k, with room for their planes.
template <class S>
PackArguments<typename S::Operand> pack_of(const Gemm<typename S::Operand>& p, int batch, int first,
                                           int stages, Context& context) {
  using Scheme = typename S::Scheme;
  const int matrices_a = p.a.batch_stride == 0 ? 1 : batch, matrices_b = p.b.batch_stride == 0 ? 1 : batch;
  const int64_t k = int64_t{first} * Scheme::kStageK;
  const int64_t length = std::min(p.k - k, int64_t{stages} * Scheme::kStageK);
  PackArguments<typename S::Operand> pack{};
  pack.a = make_source<Scheme>(p.side_a(batch).part_of_k(k, length), matrices_a, S::kM, context);
  pack.b = make_source<Scheme>(p.side_b(batch).part_of_k(k, length), matrices_b, S::kN, context);
  pack.matrices_a = matrices_a, pack.matrices_b = matrices_b;
  return pack;
}

// The pre-pass of the operands that are `made`; it also clears the flags.
template <class S>
void launch_pack(PackArguments<typename S::Operand> pack, Made made, Arguments<S>& g, Context& context) {
  g.batch_a = pack.matrices_a > 1, g.batch_b = pack.matrices_b > 1;
  g.a = pack.a.images, g.b = pack.b.images;
  g.unscale = {pack.a.unscale, pack.b.unscale, pack.a.scaled, pack.b.scaled};
  pack.blocks_a = made.a ? pack.matrices_a * pack.a.blocks() : 0;
  const int blocks = pack.blocks_a + (made.b ? pack.matrices_b * pack.b.blocks() : 0);
  const bool few_blocks = blocks <= 2 * multiprocessors();
  const auto run = [&]<int words>(int threads) {
    launch<pack_kernel<typename S::Scheme, words>>("pack", {dim3(unsigned(blocks)), dim3(unsigned(threads))},
                                                   context)(pack);
  };
  if (!few_blocks && pack.a.k > 512) return run.template operator()<kManyWords>(256);
  run.template operator()<kFewWords>(!few_blocks ? 256 : pack.a.k > 4096 ? 1024 : 512);
}

// What all segments of k but the last add to, and that one adds to its own: sums in the workspace.
template <class T>
Result<T> plus(Result<T> r, const Result<T>& sums) {
  r.c = sums.out, r.c_row_stride = sums.row_stride, r.c_col_stride = 1, r.c_batch_stride = sums.batch_stride;
  r.beta = r.alpha;
  return r;
}

template <class T>
int neighbours_of(const Result<T>& r, int batch, int most) {
  for (int count : {4, 2})
    if (count <= most && is_aligned(static_cast<const char*>(r.out), size_t(count * r.out_bytes())) &&
        r.row_stride % count == 0 && (batch == 1 || r.batch_stride % count == 0))
      return count;
  return 1;
}

// The main kernel, once for each segment of k from `begin` on.
template <class S>
void launch_segments(const char* name, const Gemm<typename S::Operand>& p,
                     const Result<typename S::Operand>& sums, const Plan& plan, int begin, int end, int batch,
                     Arguments<S> g, Context& context) {
  uint32_t *const flags = g.schedule.flags, *const progress = g.progress, *const unfinished = g.unfinished;
  for (int i = begin; i < end; ++i) {
    const bool is_last = i + 1 == plan.segments;
    g.segment = {plan.first(i) - plan.first(begin), plan.first(end) - plan.first(begin), is_last};
    g.result = is_last ? p.result : sums;
    if (i > 0) g.result = plus(g.result, sums);
    // Of few tiles the instructions that store come from DRAM once for each: pairs take a third as many.
    g.neighbours = neighbours_of(g.result, batch, plan.tiles <= multiprocessors() ? 2 : 4);
    g.schedule.stages = plan.stages(i), g.schedule.work = plan.work(i);
    if constexpr (S::Scheme::kLoop == Loop::promoting)
      g.chunk = S::Scheme::chunk(plan.all, double(plan.tiles) / multiprocessors());
    if (flags) g.schedule.flags = flags + i * multiprocessors() * S::kConsumers;
    if (progress) g.progress = progress + i * multiprocessors();
    if (unfinished) g.unfinished = unfinished + i * plan.tiles * S::kConsumerWarps;
    launch<gemm_kernel<S>>(
        name, {dim3(unsigned(plan.blocks(i))), dim3(S::kThreads), sizeof(typename S::Shared), true},
        context)(g);
  }
}

// A product of which the planes of all of m and n exist at a time, of k those of some segments.
template <class S>
void launch_product(const char* name, const Gemm<typename S::Operand>& problem, int batch, Made made,
                    ReusedWorkspace& workspace) {
  using Acc = typename S::Acc;
  constexpr bool kRepairs = S::Scheme::kLoop == Loop::promoting;
  const Plan plan = Plan::of<S>(problem, batch);
  const int group = plan.segments_at_a_time<S>(problem, batch);
  if (group < plan.segments) made = {true, true};
  workspace.begin_again();  // the planes first: they are where they were for the panel before
  auto pack = pack_of<S>(problem, batch, 0, plan.first(group), workspace);

  Gemm<typename S::Operand> p = problem;
  Result<typename S::Operand> sums{};
  if constexpr (kRepairs) {
    if (plan.segments > 1) sums = sums_in_workspace(problem, batch, workspace);
  }
  const bool blends = plan.segments > 1 && problem.result.beta != Acc(0);
  if (blends) p.result = sums;

  Arguments<S> g{};
  g.m = int(p.m), g.n = int(p.n);
  g.schedule.tiles_m = int(ceil_div(p.m, S::kM)), g.schedule.tiles_n = int(ceil_div(p.n, S::kN));
  const auto allocate = [&]<class T>(T*& p, int64_t count) {
    if (count > 0) p = static_cast<T*>(workspace.allocate(size_t(count) * sizeof(T)));
  };
  const int64_t strips = plan.tiles * S::kConsumerWarps;
  const int handed_over = plan.shares() ? plan.segments * multiprocessors() * S::kConsumers : 0;
  const int progress = plan.paces() ? plan.segments * multiprocessors() : 0;
  pack.flag_count = handed_over + progress;
  allocate(pack.flags, pack.flag_count);
  if (handed_over > 0) g.schedule.flags = pack.flags;
  if (progress > 0) g.progress = pack.flags + handed_over;
  allocate(g.schedule.partials, handed_over > 0 ? int64_t{multiprocessors()} * S::kM * S::kN : 0);
  allocate(g.unfinished, kRepairs ? plan.segments * strips : 0);
  for (int begin = 0; begin < plan.segments; begin += group) {
    const int end = std::min(begin + group, plan.segments);
    if (begin > 0) {
      workspace.begin_again();
      pack = pack_of<S>(problem, batch, plan.first(begin), plan.first(end) - plan.first(begin), workspace);
    }
    launch_pack(pack, made, g, workspace);
    launch_segments(name, p, sums, plan, begin, end, batch, g, workspace);
  }
  if constexpr (kRepairs) {
    const int64_t blocks = std::min<int64_t>(strips, 2 * multiprocessors());
    launch<repair_kernel<S>>("repair", {dim3(unsigned(blocks)), dim3(S::kN), 0, true}, workspace)(
        p, g.schedule, g.unfinished, strips, plan.segments);
    if (blends) blend(problem, sums, batch, workspace);
  }
}

// C panel by panel.
template <class S, class T>
void launch_panels(const char* name, const Gemm<T>& g, int batch, ReusedWorkspace& workspace) {
  const Panels panels = Panels::of<S>(g, batch);
  for (int i = 0; i < panels.outer.parts; ++i)
    for (int j = 0; j < panels.inner.parts; ++j)
      launch_product<S>(name, panels.at<S>(g, i, j), batch, panels.made(j), workspace);
}

// A product of any size, a batch in pieces.
template <class Scheme, class T>
void gemm_in_pieces(const char* name, const Gemm<T>& g, int batch, Context& context) {
  using Wide = Shape<Scheme, Scheme::kWideN>;
  using Narrow = Shape<Scheme, 128>;
  const int piece = int(std::clamp<int64_t>(most_plane_bytes() / Panels::bytes<Wide>(g), 1, batch));
  ReusedWorkspace workspace(context);
  for (int first = 0; first < batch; first += piece) {
    const int count = std::min(piece, batch - first);
    const double narrow = Plan::of<Narrow>(g, count).predicted_time(Scheme::kNarrowTime);
    narrow < Plan::of<Wide>(g, count).predicted_time(1)
        ? launch_panels<Narrow>(name, g.at_batch(first), count, workspace)
        : launch_panels<Wide>(name, g.at_batch(first), count, workspace);
  }
}

// The launcher of a scheme's row.
template <class Scheme>
void gemm_by_planes(const char* name, const GemmProblem& problem, Context& context) {
  run_gemm<typename Scheme::Operand>(
      problem, context, [&](const auto& g, int batch) { gemm_in_pieces<Scheme>(name, g, batch, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET::planes
