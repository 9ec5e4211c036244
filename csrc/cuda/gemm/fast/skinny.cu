// Level 6 where m or n is small and the product is as fast as the large operand can be read. What changes
// from `wgmma_specialized`:
//   - the large operand has the 64 rows of wgmma, whichever side it stands on (C^T = B^T A^T), and the other
//     one, padded to 16 or 64 columns, comes along;
//   - all multiprocessors read until the end, with tiles narrow enough for one each, or sharing k
//     (fast/skinny_sums.cuh);
//   - what is in flight counts, not what is reused: 64 or 80 KB of the large operand, asked for before
//     anything else is done;
//   - in L2 that operand makes room for itself. Where a kernel before left L2 full of what it wrote, this
//     saves most of writing it to memory meanwhile: 4 of 49 us;
//   - rows that begin anywhere are read by 8 warps of the block itself (parts/unaligned_tile.cuh), not
//   copied.
// On an H200 with 8192 x 8192 weights in bf16, other operands and results of 1, 8, 16 and 64 rows, after
// 256 MB of zeros were written: 3.3 to 3.4 TB/s up to 16 rows, 1.06 to 1.09 of cuBLAS, 3.1 at 64 (1.01 to
// 1.04). Little is left: these copies without a product take 37.3 us (k along rows 38.8), with one 39.7
// (40.8), and with plain loads 37.9. After L2 was filled by reading: 3.5 to 3.65 TB/s, where cuBLAS has 3.7
// to 3.9, these copies 4.1 and a copy in memory 4.15.
#include "cuda/gemm/fast/skinny_sums.cuh"
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/unaligned_tile.cuh"
#include "cuda/gemm/parts/wgmma_consumer.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

using WideTile = SkinnyShape<128>;   // 5 stages
using NarrowTile = SkinnyShape<64>;  // 8 stages

struct Maps {
  TensorMap large, narrow;
};

// Among consumers and the one producer warp.
template <class S>
__device__ __forceinline__ void meet() {
  named_barrier(1, S::kConsumerThreads + 32);
}

// One thread asks for boxes. The others of the block come in when the ring is full.
template <class S, class A, class B, class T>
__device__ __forceinline__ void produce(typename S::Shared& shared, const Maps& maps,
                                        const SkinnyArguments<T>& g) {
  const bool elected = elect_one();
  RingPosition<S::kStages> at{0, 1};  // a fresh stage counts as emptied
  int asked = 0;
  g.shares.each_part(int(blockIdx.x), [&](const TilePart& part) {
    const SkinnyPlace<S> place(part.tile, g);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      if (asked++ == S::kStages) meet<S>();
      shared.ring.fill(at, elected, A::kBytes + g.narrow_rows * 128, [&](int stage, Barrier* full) {
        unsigned char* const to = shared.stage[stage];
        A::template load<true>(to, &maps.large, full, place.row, step * A::kK, place.batch * g.batch_large);
        B::load(to + A::kBytes, &maps.narrow, full, place.column, step * B::kK, place.batch * g.batch_narrow);
      });
    }
  });
  if (asked <= S::kStages) meet<S>();
}

// All threads of these warps bring units; those of a stage are on their way before it is free. Each reports
// its own: compute-sanitizer follows no order from lanes through __syncwarp() to one that reports for all.
template <class S, class A, class B, class T>
__device__ __forceinline__ void produce_units(typename S::Shared& shared, const SkinnyArguments<T>& g) {
  const int thread = int(threadIdx.x) - S::kConsumerThreads;
  UnitCopy<T, A, S::kUnitThreads> large(thread);
  UnitCopy<T, B, S::kUnitThreads> narrow(thread);
  RingPosition<S::kStages> at{0, 1};
  g.shares.each_part(int(blockIdx.x), [&](const TilePart& part) {
    const SkinnyPlace<S> place(part.tile, g);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      large.load(g.large, place.row, step * A::kK, place.batch);
      narrow.load(g.narrow, place.column, step * B::kK, place.batch);
      wait_phase(&shared.ring.empty[at.stage], at.phase);
      large.store(shared.stage[at.stage]);
      narrow.store(shared.stage[at.stage] + A::kBytes);
      fence_async_shared();
      arrive(&shared.ring.full[at.stage]);
      at.advance();
    }
  });
}

// With COLUMNS of the narrow operand.
template <class S, int COLUMNS, class Products, class T>
__device__ __forceinline__ void consume(typename S::Shared& shared, const SkinnyArguments<T>& g, int warp) {
  WgmmaConsumer<S::kStages, S::kStageBytes, Products> consumer(shared.ring, shared.stage[0], warp);
  Accumulator<T> sum[COLUMNS / 2];  // (64, COLUMNS), a warp 16 rows of them
  g.shares.each_part(int(blockIdx.x), [&](const TilePart& part) {
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) consumer.multiply(sum, step > part.first, [] {});
    consumer.finish(sum);
    const SkinnyPlace<S> place(part.tile, g);
    if (part.first == 0 && part.end == g.shares.steps)
      store_tile<typename Products::Rows>(g, shared.slab[warp].word, sum, place, warp);
    else
      hand_over(g, sum, part, place);
  });
}

template <class S, class T, Major large_major, Major narrow_major>
__global__ void __launch_bounds__(S::kConsumerThreads + S::kUnitThreads, 1)
    gemm_skinny_kernel(const __grid_constant__ Maps maps, const __grid_constant__ SkinnyArguments<T> g) {
#if FASTGEMM_SM90A
  using A = OperandTile<T, large_major, S::kM>;
  using B = OperandTile<T, narrow_major, S::kN>;
  constexpr bool kRegisters = large_major == Major::mn && sizeof(T) != 2;
  using Products = std::conditional_t<kRegisters, RegisterOperand<T, A, B>,
                                      SharedOperands<T, A, B, large_major, narrow_major>>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  const int warp = warp_index();
  constexpr int kProducer = S::kConsumerThreads / 32;  // the first warp that is no consumer
  if (warp == kProducer) {
    if (elect_one()) {
      shared->ring.init(g.by_units ? S::kUnitThreads : 1, kProducer);
      fence_barrier_init();
    }
    __syncwarp();
  }
  let_next_kernel_begin();
  if (S::kShares && g.by_units) {
    __syncthreads();
    if (warp >= kProducer) return produce_units<S, A, B>(*shared, g);
  } else {
    if (warp == kProducer) return produce<S, A, B>(*shared, maps, g);
    meet<S>();
  }
  if (g.narrow_rows == 16)
    consume<S, 16, Products>(*shared, g, warp);
  else
    consume<S, 64, Products>(*shared, g, warp);
#endif
}

// Both operands, the narrow one copied where that lets the hardware read the large one, or read it in whole
// lines: all blocks read it, and those that ask for the same line wait for each other.
template <class T>
struct SkinnyOperands {
  BoxOperand<T> large, narrow;
  bool large_is_b, by_units;

  SkinnyOperands(const Gemm<T>& g, int batch, Context& context) : large_is_b(g.n > g.m) {
    Side<T> wide = g.side_a(batch), other = g.side_b(batch);
    if (large_is_b) std::swap(wide, other);
    large = operand_in_place(wide, batch);
    narrow = operand_in_place(other, batch);
    by_units = !large.readable();
    if (narrow.major == Major::mn && (sizeof(T) != 2 || (!by_units && other.side < 64)))
      narrow = copied_along(Major::k, other, batch, context);
    else if (!by_units && !narrow.readable())
      narrow = copied_along(narrow.major, other, batch, context);
  }

  // Calls body.operator()<large_major, narrow_major>().
  template <class Body>
  void with_majors(Body&& body) const {
    const bool large_k = large.major == Major::k;
    if constexpr (sizeof(T) == 2) {
      if (narrow.major == Major::mn)
        return large_k ? body.template operator()<Major::k, Major::mn>()
                       : body.template operator()<Major::mn, Major::mn>();
    }
    large_k ? body.template operator()<Major::k, Major::k>()
            : body.template operator()<Major::mn, Major::k>();
  }
};

// How many tiles there are, and how many multiprocessors' time is lost, in bytes of the large operand, where
// blocks have whole ones.
template <class S, class T>
struct WholeTiles {
  int64_t m, n, all;
  double idle_bytes;

  WholeTiles(const SkinnyOperands<T>& o, int batch)
      : m(ceil_div(o.large.side, S::kM)), n(ceil_div(o.narrow.side, S::kN)), all(batch * m * n) {
    const int64_t places = ceil_div(all, multiprocessors()) * multiprocessors();
    idle_bytes = double(places - all) * double(o.large.k) * S::kM * sizeof(T);
  }
  // To share tiles costs a second kernel, 3 us; the device reads so much in that time.
  bool pay() const { return idle_bytes < 10e6; }
};

template <class S, class T>
void launch_tiles(const Gemm<T>& problem, const SkinnyOperands<T>& o, const WholeTiles<S, T>& tiles,
                  Context& context) {
  using Acc = Accumulator<T>;
  const auto& [large, narrow, large_is_b, by_units] = o;
  const int64_t steps = ceil_div(large.k, 128 / int(sizeof(T)));
  const bool shares = !tiles.pay();
  const int64_t units = shares ? tiles.all * steps : tiles.all, unit = shares ? 1 : steps;
  const int64_t blocks = std::min<int64_t>(multiprocessors(), units);
  SkinnyArguments<T> g{problem, large, narrow, large_is_b, by_units};
  g.narrow_rows = narrow.major == Major::k && narrow.side <= 16 ? 16 : S::kN;
  g.batch_large = large.batch_stride != 0, g.batch_narrow = narrow.batch_stride != 0;
  g.tiles_m = int(tiles.m), g.tiles_n = int(tiles.n);
  g.shares = {int(steps), int(units / blocks * unit), int(units % blocks), int(unit)};
  if (shares)
    g.partials = static_cast<Acc*>(context.allocate(size_t(blocks) * 2 * S::kM * S::kN * sizeof(Acc)));

  const Maps maps = by_units ? Maps{} : Maps{large.map(S::kM), narrow.map(g.narrow_rows)};
  const int threads = S::kConsumerThreads + (by_units ? S::kUnitThreads : 32);
  const LaunchShape shape{dim3(unsigned(blocks)), dim3(unsigned(threads)), sizeof(typename S::Shared)};
  const int64_t groups = ceil_div(std::min<int64_t>(narrow.side, S::kN), 8);
  const LaunchShape add{dim3(unsigned(tiles.all * S::kConsumers), unsigned(groups)), dim3(128), 0, true};
  o.with_majors([&]<Major large_major, Major narrow_major>() {
    if constexpr (S::takes(large_major, narrow_major, sizeof(T))) {
      launch<gemm_skinny_kernel<S, T, large_major, narrow_major>>("skinny", shape, context)(maps, g);
      using Rows = std::conditional_t<large_major == Major::mn && sizeof(T) != 2, Fragments<T>, InOrder>;
      if constexpr (S::kShares)
        if (shares) launch<gemm_skinny_add_kernel<S, Rows, T>>("skinny_add", add, context)(g);
    }
  });
}

// Narrow tiles, which read more of the narrow operand, where they save half a microsecond.
template <class T>
void gemm_tiles(const Gemm<T>& g, int batch, Context& context) {
  const SkinnyOperands<T> o(g, batch, context);
  const WholeTiles<WideTile, T> wide(o, batch);
  const WholeTiles<NarrowTile, T> narrow(o, batch);
  narrow.pay() && narrow.idle_bytes + 2e6 < wide.idle_bytes && !o.by_units &&
          NarrowTile::takes(o.large.major, o.narrow.major, sizeof(T))
      ? launch_tiles(g, o, narrow, context)
      : launch_tiles(g, o, wide, context);
}

}  // namespace

void gemm_skinny(const GemmProblem& problem, Context& context) {
  run_gemm<Half, BFloat16, int8_t>(problem, context,
                                   [&](const auto& g, int batch) { gemm_tiles(g, batch, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
