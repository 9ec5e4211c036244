// Level 6 where m or n is small and the product is as fast as the large operand can be read. What changes
// from `wgmma_specialized`:
//   - the large operand has the 64 rows of wgmma, whichever side it stands on (C^T = B^T A^T), and the other
//     one, padded to 64 columns, comes along;
//   - k is shared among all multiprocessors (level6_skinny_sums.cuh), so that they all read until the end;
//   - what is in flight counts, not what is reused: a ring of 9 stages, 16 KB of the large operand each;
//   - rows that begin anywhere are read by 8 warps of the block itself (level6_skinny_units.cuh), not copied.
#include "cuda/gemm/level5_choice.cuh"
#include "cuda/gemm/level6_products.cuh"
#include "cuda/gemm/level6_skinny_sums.cuh"
#include "cuda/gemm/level6_skinny_units.cuh"
#include "cuda/gemm/levels.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

using S = SkinnyShape;

struct Shared {
  unsigned char stage[S::kStages][S::kStageBytes];  // (kM, kK) of the large operand, (kN, kK) of the other
  Barrier full[S::kStages], empty[S::kStages];
};
static_assert(sizeof(Shared) <= 227 << 10);

struct Maps {
  TensorMap large, narrow;
};

// Walks around the ring; the phase flips at each turn.
struct RingPosition {
  int stage = 0;
  uint32_t phase;
  __device__ __forceinline__ void advance() {
    if (++stage == S::kStages) stage = 0, phase ^= 1;
  }
};

// One thread asks for boxes.
template <class A, class B, class T>
__device__ __forceinline__ void produce(Shared& shared, const Maps& maps, const SkinnyArguments<T>& g,
                                        Parts parts) {
  const bool elected = elect_one();
  RingPosition at{0, 1};  // a fresh stage counts as emptied
  Part part;
  while (parts.next(part)) {
    const SkinnyPlace place(part.tile, g);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      wait_phase(&shared.empty[at.stage], at.phase);
      if (elected) {
        Barrier* const full = &shared.full[at.stage];
        unsigned char* const stage = shared.stage[at.stage];
        arrive_expecting(full, S::kStageBytes);
        A::load(stage, &maps.large, full, place.row, step * A::kK, place.batch * g.batch_large);
        B::load(stage + A::kBytes, &maps.narrow, full, place.column, step * B::kK,
                place.batch * g.batch_narrow);
      }
      at.advance();
    }
  }
}

// All threads of the loader warps bring units; those of a stage are on their way before it is free.
template <class A, class B, class T>
__device__ __forceinline__ void produce_units(Shared& shared, const SkinnyArguments<T>& g, Parts parts) {
  const int thread = int(threadIdx.x) - S::kConsumerThreads;
  UnitCopy<T, A, S::kLoaderThreads> large(thread);
  UnitCopy<T, B, S::kLoaderThreads> narrow(thread);
  RingPosition at{0, 1};
  Part part;
  while (parts.next(part)) {
    const SkinnyPlace place(part.tile, g);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      large.load(g.large, place.row, step * A::kK, place.batch);
      narrow.load(g.narrow, place.column, step * B::kK, place.batch);
      wait_phase(&shared.empty[at.stage], at.phase);
      large.store(shared.stage[at.stage]);
      narrow.store(shared.stage[at.stage] + A::kBytes);
      fence_async_shared();
      __syncwarp();
      if (thread % 32 == 0) arrive(&shared.full[at.stage]);
      at.advance();
    }
  }
}

template <class Products, class T>
__device__ __forceinline__ void consume(Shared& shared, const SkinnyArguments<T>& g, Parts parts, int warp) {
  const int lane = int(threadIdx.x) % 32;
  Products products(shared.stage[0], warp);
  Accumulator<T> sum[S::kSums];  // (64, kN), a warp 16 rows of them
  RingPosition at{0, 0};
  Part part;
  while (parts.next(part)) {
    Barrier* before = nullptr;
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      const bool accumulate = step > part.first;
      wait_phase(&shared.full[at.stage], at.phase);
      products.multiply(
          sum, at.stage * S::kStageBytes, accumulate, [] {},
          [&] {
            if (lane == 0 && accumulate) arrive(before);
          });
      before = &shared.empty[at.stage];
      at.advance();
    }
    wgmma_wait<0>(sum);
    __syncwarp();
    if (lane == 0) arrive(before);
    const SkinnyPlace place(part.tile, g);
    if (part.first == 0 && part.end == g.work.steps)
      store_sums<typename Products::Rows>(g, sum, place, warp);
    else
      hand_over(g, sum, part, place);
  }
}

template <class T, Major large_major, Major narrow_major>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_skinny_kernel(const __grid_constant__ Maps maps, const __grid_constant__ SkinnyArguments<T> g) {
#if FASTGEMM_SM90A
  using A = OperandTile<T, large_major, S::kM>;
  using B = OperandTile<T, narrow_major, S::kN>;
  constexpr bool kRegisters = large_major == Major::mn && sizeof(T) != 2;
  using Products = std::conditional_t<kRegisters, RegisterOperand<T, A, B>,
                                      SharedOperands<T, A, B, large_major, narrow_major>>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  let_next_kernel_begin();
  if (threadIdx.x == S::kConsumerThreads && !g.by_units)
    prefetch_map(&maps.large), prefetch_map(&maps.narrow);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      init_barrier(&shared->full[i], g.by_units ? S::kLoaderThreads / 32 : 1);
      init_barrier(&shared->empty[i], S::kConsumerThreads / 32);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int warp = warp_index();
  const Parts parts(g.work, int(blockIdx.x), int(gridDim.x));
  if (warp < S::kConsumerThreads / 32)
    consume<Products>(*shared, g, parts, warp);
  else if (g.by_units)
    produce_units<A, B>(*shared, g, parts);
  else if (warp == S::kConsumerThreads / 32)
    produce<A, B>(*shared, maps, g, parts);
#endif
}

// Both operands, the narrow one copied where that lets the hardware read the large one.
template <class T>
struct SkinnyOperands {
  BoxOperand<T> large, narrow;
  bool large_is_b, by_units;

  SkinnyOperands(const Gemm<T>& g, int batch, Context& context) : large_is_b(g.n > g.m) {
    const auto stride = [&](int64_t batch_stride) { return batch > 1 ? batch_stride : 0; };
    OperandPlace<T> wide{g.a.data, g.m, g.k, g.a.row_stride, g.a.col_stride, stride(g.a.batch_stride), batch},
        other{g.b.data, g.n, g.k, g.b.col_stride, g.b.row_stride, stride(g.b.batch_stride), batch};
    if (large_is_b) std::swap(wide, other);
    large = operand_in_place(wide);
    narrow = operand_in_place(other);
    const bool copies_narrow = sizeof(T) != 2 && narrow.major == Major::mn;
    if (large.readable() || copies_narrow) narrow = box_operand(other, false, context);
    by_units = !large.readable();
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

template <class T>
void gemm_shared_k(const Gemm<T>& problem, int batch, Context& context) {
  const SkinnyOperands<T> operands(problem, batch, context);
  const auto& [large, narrow, large_is_b, by_units] = operands;
  SkinnyArguments<T> g{.gemm = problem,
                       .large = large,
                       .narrow = narrow,
                       .large_is_b = large_is_b,
                       .by_units = by_units,
                       .batch_large = large.batch_stride != 0,
                       .batch_narrow = narrow.batch_stride != 0};
  const int blocks = g.plan(batch, context);
  const Maps maps = by_units ? Maps{} : Maps{large.map(S::kM), narrow.map(S::kN)};
  operands.with_majors([&]<Major large_major, Major narrow_major>() {
    launch<gemm_skinny_kernel<T, large_major, narrow_major>>(
        "skinny", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(Shared)}, context)(maps, g);
    using Rows = std::conditional_t<large_major == Major::mn && sizeof(T) != 2, Fragments<T>, InOrder>;
    if (g.partials) add_shares<Rows>(g, batch, context);
  });
}

}  // namespace

void gemm_skinny(const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (sizeof(T) <= 2) {
      if (!fits_tiles(g)) return gemm_small(g, batch, context);
      gemm_shared_k(g, batch, context);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
