// The packed engine: GEMM by a scheme (scheme.cuh) that says what to multiply. Three launches:
//   - pack_kernel cuts A and B into planes and writes them as images of shared memory (pack.cuh);
//   - gemm_kernel, here, persistent and warp-specialized as in wgmma_specialized. Its producers copy images,
//     one warp for each ring; no tensor maps, no swizzle, no edges;
//   - repair_kernel computes again what is not finite (repair.cuh), where a scheme is of floating point.
// Tiles of the last one to two waves are shared evenly among the blocks (level5_stream_k.cuh), their sums
// added in a fixed order.
#pragma once

#include <utility>

#include "cuda/gemm/level5_choice.cuh"
#include "cuda/gemm/packed/multiply.cuh"
#include "cuda/gemm/packed/pack.cuh"
#include "cuda/gemm/packed/repair.cuh"
#include "cuda/gemm/packed/store.cuh"

namespace fastgemm::FASTGEMM_TARGET::packed {

// One warp fills one ring.
template <class S, int ring>
__device__ __forceinline__ void produce(typename S::Shared& shared, const Arguments<S>& g, Parts parts) {
  constexpr Ring kRing = S::Scheme::kRings[ring];
  constexpr int kBytesA = kRing.planes * S::kPlaneA, kBytesB = kRing.planes * S::kPlaneB;
  const bool elected = elect_one();
  RingPosition<S, ring> at;
  at.phase = 1;  // a fresh slot counts as emptied
  Part part;
  while (parts.next(part)) {
    const TilePlace<S> place(part.tile, g.schedule);
    const int64_t tile_a = int64_t(place.batch * g.batch_a) * g.schedule.tiles_m + place.row / S::kM;
    const int64_t tile_b = int64_t(place.batch * g.batch_b) * g.schedule.tiles_n + place.column / S::kN;
    const int first = part.first * kChunk, stages = g.schedule.stages_of(part);
    const int64_t from_a = tile_a * g.schedule.stages + first, from_b = tile_b * g.schedule.stages + first;
    for (int sweep = 0; sweep < kRing.sweeps; ++sweep) {
      const unsigned char* a = g.a + from_a * S::kImageA + kRing.first_plane * S::kPlaneA;
      const unsigned char* b = g.b + from_b * S::kImageB + kRing.first_plane * S::kPlaneB;
      FASTGEMM_NO_UNROLL
      for (int i = 0; i < stages; ++i) {
        wait_phase(at.empty(shared), at.phase);
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
__device__ __forceinline__ void add_segment(const Arguments<S>& g, typename S::Acc (&sum)[S::kSums],
                                            bool first, bool keep) {
  float* const at = g.segments + int64_t(blockIdx.x) * (S::kM * S::kN) + threadIdx.x * 4;
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kSums; i += 4) {
    if (!first) {
      const auto v = load_vector<Vector16<float>>(at + i * S::kConsumerThreads);
      FASTGEMM_UNROLL
      for (int j = 0; j < 4; ++j) sum[i + j] += v[j];
    }
    if (keep)
      store_vector(at + i * S::kConsumerThreads,
                   Vector16<float>{{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]}});
  }
}

inline constexpr int kSegment = 256;  // stages

// Sums of long k, kSegment stages at a time, so that none is made of more than some hundred promoted ones:
// what it loses with each grows with all that came before. In between the segments' sum waits in the
// workspace.
template <class S>
__device__ __forceinline__ void multiply_segments(typename S::ConsumerLoop& loop,
                                                  typename S::Acc (&sum)[S::kSums], const Arguments<S>& g,
                                                  int stages) {
  if constexpr (S::Scheme::kLoop == Loop::promoting) {
    bool first = true;
    for (; stages > kSegment; stages -= kSegment, first = false) {
      loop.multiply(sum, kSegment);
      add_segment(g, sum, first, true);
    }
    loop.multiply(sum, stages);
    if (!first) add_segment(g, sum, false, false);
  } else {
    loop.multiply(sum, stages);
  }
}

template <class S>
__device__ __forceinline__ void consume(typename S::Shared& shared, const Arguments<S>& g, Parts parts,
                                        int warp) {
  typename S::ConsumerLoop loop(shared, warp);
  typename S::Acc sum[S::kSums];  // (64, S::kN), a warp 16 rows of them
  Part part;
  while (parts.next(part)) {
    multiply_segments<S>(loop, sum, g, g.schedule.stages_of(part));
    if (part.end != g.schedule.work.steps) {
      hand_over<S>(g.schedule, sum, warp / 4);
      continue;
    }
    if (part.first != 0) collect<S>(g.schedule, sum, part, warp / 4);
    finish_strip(g, sum, part.tile, warp);
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
  wait_for_kernel_before();
  const int warp = warp_index();
  const Parts parts(g.schedule.work, int(blockIdx.x), int(gridDim.x));
  if (warp >= S::kConsumerWarps) {
    release_registers<40>();
    [&]<int... ring>(std::integer_sequence<int, ring...>) {
      ((warp == S::kConsumerWarps + ring ? produce<S, ring>(*shared, g, parts) : void()), ...);
    }(std::make_integer_sequence<int, S::kRings>{});
  } else {
    claim_registers<232>();
    consume<S>(*shared, g, parts, warp);
  }
#endif
}

inline constexpr double kHandOver = 3;  // chunks: what it costs to hand sums over and to add them

// Units of work: at least one of a tile, the last one of up to 7 stages.
inline int chunks_of(int stages) { return std::max(stages / kChunk, 1); }

// One block a multiprocessor; where every tile has several, the same number each, if that leaves few idle.
inline int count_blocks(int64_t tiles, int chunks) {
  const int64_t processors = multiprocessors(), each = processors / tiles;
  const bool even = each >= 2 && each * tiles * 10 >= processors * 9;
  return int(std::min(even ? each * tiles : processors, tiles * chunks));
}

// The tiles of the last one to two waves are shared, unless the last wave is so full that this costs more.
inline StreamK plan_waves(int64_t tiles, int chunks, int blocks) {
  StreamK s = plan_stream_k(tiles, chunks, blocks);
  const double whole = double(ceil_div(tiles, blocks)) * chunks;
  if (double(tiles) * chunks / blocks + kHandOver > whole) s.whole_tiles = int(tiles), s.share = s.longer = 0;
  return s;
}

template <class S>
Schedule<typename S::Acc> make_schedule(int64_t m, int64_t n, int64_t k, int batch, int& blocks,
                                        Context& context) {
  Schedule<typename S::Acc> s{};
  s.tiles_m = int(ceil_div(m, S::kM)), s.tiles_n = int(ceil_div(n, S::kN));
  s.stages = int(ceil_div(k, S::Scheme::kStageK));
  const int64_t tiles = int64_t(batch) * s.tiles_m * s.tiles_n;
  const int chunks = chunks_of(s.stages);
  blocks = count_blocks(tiles, chunks);
  s.work = plan_waves(tiles, chunks, blocks);
  if (s.work.whole_tiles == tiles) return s;
  s.partials = static_cast<typename S::Acc*>(context.allocate(size_t(blocks) * S::kM * S::kN * 4));
  s.flags = static_cast<uint32_t*>(context.allocate(size_t(blocks) * S::kConsumers * sizeof(uint32_t)));
  return s;
}

template <class S>
void launch_packed(const char* name, const Gemm<typename S::Operand>& problem, int batch, Context& context) {
  using Scheme = typename S::Scheme;
  using T = typename S::Operand;
  const Gemm<T>& p = problem;
  const int matrices_a = p.a.batch_stride == 0 ? 1 : batch, matrices_b = p.b.batch_stride == 0 ? 1 : batch;
  int blocks = 0;
  Arguments<S> g{};
  g.schedule = make_schedule<S>(p.m, p.n, p.k, batch, blocks, context);
  PackArguments<T> pack{};
  pack.a = make_source<Scheme>(p.a.data, p.m, p.k, p.a.row_stride, p.a.col_stride, p.a.batch_stride,
                               matrices_a, S::kM, context);
  pack.b = make_source<Scheme>(p.b.data, p.n, p.k, p.b.col_stride, p.b.row_stride, p.b.batch_stride,
                               matrices_b, S::kN, context);
  pack.blocks_a = int64_t(matrices_a) * pack.a.blocks();
  pack.flags = g.schedule.flags, pack.flag_count = g.schedule.flags ? blocks * S::kConsumers : 0;
  const int64_t pack_blocks = pack.blocks_a + int64_t(matrices_b) * pack.b.blocks();
  const bool few = pack_blocks < 2 * multiprocessors() && p.k > 4096;
  launch<pack_kernel<Scheme>>(
      "pack", {dim3(unsigned(pack_blocks)), dim3(few ? kMostPackThreads : kPackThreads)}, context)(pack);

  g.result = p.result;
  g.m = int(p.m), g.n = int(p.n);
  g.pairs = is_aligned(static_cast<const char*>(p.result.out), size_t(2 * p.result.out_bytes())) &&
            p.result.row_stride % 2 == 0 && (batch == 1 || p.result.batch_stride % 2 == 0);
  g.batch_a = matrices_a > 1, g.batch_b = matrices_b > 1;
  g.a = pack.a.images, g.b = pack.b.images;
  g.unscale = {pack.a.unscale, pack.b.unscale, pack.a.scaled, pack.b.scaled};
  const int64_t strips = int64_t(batch) * g.schedule.tiles_m * g.schedule.tiles_n * S::kConsumerWarps;
  if (Scheme::kLoop == Loop::promoting && g.schedule.stages > kSegment)
    g.segments = static_cast<typename S::Acc*>(context.allocate(size_t(blocks) * S::kM * S::kN * 4));
  constexpr bool kRepairs = Scheme::kLoop == Loop::promoting;
  if (kRepairs) g.unfinished = static_cast<uint32_t*>(context.allocate(size_t(strips) * sizeof(uint32_t)));
  launch<gemm_kernel<S>>(name, {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared), true},
                         context)(g);
  if constexpr (kRepairs) {
    const int64_t most = 2 * multiprocessors();
    launch<repair_kernel<S>>("repair", {dim3(unsigned(std::min(strips, most))), dim3(S::kN), 0, true},
                             context)(p, g.schedule, g.unfinished, strips);
  }
}

// Bytes of planes that may exist at a time; batches that need more come in pieces.
inline constexpr int64_t kMostPlaneBytes = int64_t{1} << 30;

// Of the block that has most to do, in chunks of a wide tile.
template <class S, class T>
double predicted_time(const Gemm<T>& g, int batch) {
  const int64_t tiles = int64_t(batch) * ceil_div(g.m, S::kM) * ceil_div(g.n, S::kN);
  const int chunks = chunks_of(int(ceil_div(g.k, S::Scheme::kStageK)));
  const int blocks = count_blocks(tiles, chunks);
  const StreamK work = plan_waves(tiles, chunks, blocks);
  const double whole = double(ceil_div(work.whole_tiles, blocks)) * chunks;
  const double shared = work.whole_tiles < tiles ? double(work.share + (work.longer > 0)) + kHandOver : 0;
  return (whole + shared) * S::kTileTime;
}

// A product of any size, a batch in pieces.
template <class Scheme, class T>
void gemm_in_pieces(const char* name, const Gemm<T>& g, int batch, Context& context) {
  using Wide = Shape<Scheme, Scheme::kWideN>;
  using Narrow = Shape<Scheme, 128>;
  if (g.k == 0 || std::max({g.m, g.n, g.k}) > int64_t{1} << 28) return gemm_small(g, batch, context);
  const int64_t rows = ceil_div(g.m, Wide::kM) * Wide::kM + ceil_div(g.n, Wide::kN) * Wide::kN;
  const int64_t bytes = rows * ceil_div(g.k, Scheme::kStageK) * (Wide::kImageA / Wide::kM);
  const int piece = int(std::clamp<int64_t>(kMostPlaneBytes / bytes, 1, batch));
  for (int first = 0; first < batch; first += piece) {
    const int count = std::min(piece, batch - first);
    predicted_time<Narrow>(g, count) < predicted_time<Wide>(g, count)
        ? launch_packed<Narrow>(name, g.at_batch(first), count, context)
        : launch_packed<Wide>(name, g.at_batch(first), count, context);
  }
}

// The launcher of a scheme's row.
template <class Scheme>
void gemm_packed(const char* name, const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (std::is_same_v<T, typename Scheme::Operand>)
      gemm_in_pieces<Scheme>(name, g, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET::packed
