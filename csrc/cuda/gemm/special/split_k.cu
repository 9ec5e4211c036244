// Level 6 on Hopper for few tiles with long k: split-K. What changes from wgmma_specialized:
//   - k is cut so that every multiprocessor has a part of a tile, and one part is all that a block computes;
//   - nobody waits for anybody: sums go to the workspace as matrices, and a second kernel, launched
//     meanwhile, adds them (sums/splits.cuh);
//   - the first copies are under way before the block has met;
//   - without stores between products there is nothing for which registers would have to be given up.
// What is left is mostly bytes: a plain kernel reads 64 MB in 25 us when L2 is full of lines to write back,
// 256 x 256 x 65536 in bf16 takes 33 (narrow tiles; 37 with wide ones, whose sums are twice as many).
#include "cuda/gemm/level5/choice.cuh"
#include "cuda/gemm/levels.h"
#include "cuda/gemm/ring_position.cuh"
#include "cuda/gemm/sums/splits.cuh"
#include "cuda/gemm/wgmma/products.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Block tile (kM, kN), 64 rows of it a consumer warpgroup; one producer warp; the ring of stages.
template <int N>
struct Shape {
  static constexpr int kM = 128, kN = N;
  static constexpr int kConsumerWarps = kM / 16, kThreads = 32 * kConsumerWarps + 32;
  static constexpr int kSums = kN / 2;  // of a consumer thread
  static constexpr int kStageBytes = (kM + kN) * 128, kStages = (192 << 10) / kStageBytes;

  struct Shared {
    unsigned char stage[kStages][kStageBytes];  // (kM, kK) of A, then (kN, kK) of B
    Barrier full[kStages], empty[kStages];
  };
  // More than that, so that the multiprocessor is set up to have room for blocks of the second kernel.
  static constexpr int kSharedBytes = int(sizeof(Shared)) + (8 << 10);
  static_assert(kSharedBytes <= 227 << 10);
};
using NarrowTile = Shape<128>;  // 6 stages
using WideTile = Shape<256>;    // 4 stages

template <class T>
struct Arguments {
  SplitSums<Accumulator<T>> sums;
  int tiles_n;  // of a matrix
  SplitStages stages;
  int batch_a, batch_b;  // 0 where the batch shares the operand
};

// A block's part of C: stages [begin, end) of a tile. Blocks of one run of k stand side by side, so that they
// find each other's operands in L2.
template <class S>
struct Part {
  int split, batch, row, column, begin, end;

  template <class T>
  __device__ __forceinline__ explicit Part(const Arguments<T>& g) {
    const int tile = int(blockIdx.x);
    split = int(blockIdx.z), batch = int(blockIdx.y);
    row = tile / g.tiles_n * S::kM, column = tile % g.tiles_n * S::kN;
    begin = g.stages.begin(split), end = g.stages.begin(split + 1);
  }
};

// One thread asks for copies, stage after stage.
template <class S, class A, class B, class T>
struct Producer {
  typename S::Shared& shared;
  const TensorMap &a, &b;
  const Arguments<T>& g;
  const Part<S>& part;
  int step = part.begin;
  RingPosition<S::kStages> at{0, 1};  // a fresh stage counts as emptied

  __device__ __forceinline__ void run_to(int end) {
    FASTGEMM_NO_UNROLL
    for (; step < end; ++step, at.advance()) {
      wait_phase(&shared.empty[at.stage], at.phase);
      Barrier* const full = &shared.full[at.stage];
      unsigned char* const stage = shared.stage[at.stage];
      arrive_expecting(full, A::kBytes + B::kBytes);
      A::template load<true>(stage, &a, full, part.row, step * A::kK, part.batch * g.batch_a);
      B::template load<true>(stage + A::kBytes, &b, full, part.column, step * B::kK, part.batch * g.batch_b);
    }
  }
};

template <class S, class Products, class T>
__device__ __forceinline__ void consume(typename S::Shared& shared, const Arguments<T>& g,
                                        const Part<S>& part, int warp) {
  using Acc = Accumulator<T>;
  const int lane = int(threadIdx.x) % 32;
  Products products(shared.stage[0], warp);
  Acc sum[S::kSums];  // (64, S::kN) of the warpgroup
  Barrier* before = nullptr;
  RingPosition<S::kStages> at{0, 0};
  FASTGEMM_NO_UNROLL
  for (int step = part.begin; step < part.end; ++step, at.advance()) {
    wait_phase(&shared.full[at.stage], at.phase);
    products.multiply(
        sum, at.stage * S::kStageBytes, step > part.begin, [] {},
        [&] {
          if (lane == 0 && step > part.begin) arrive(before);
        });
    before = &shared.empty[at.stage];
  }
  wgmma_wait<0>(sum);
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kSums; i += 2) {
    const Position p = WgmmaLayout<T>::c(int(threadIdx.x) % 128, i);
    g.sums.put(part.split, part.batch, part.row + 64 * (warp / 4) + p.row, part.column + p.column, sum[i],
               sum[i + 1]);
  }
}

template <class S, class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_split_k_kernel(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                        const __grid_constant__ Arguments<T> g) {
#if FASTGEMM_SM90A
  using A = OperandTile<T, a_major, S::kM>;
  using B = OperandTile<T, b_major, S::kN>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  const int warp = warp_index();
  const Part<S> part(g);
  Producer<S, A, B, T> producer{*shared, map_a, map_b, g, part};
  const bool produces = warp == S::kConsumerWarps && elect_one();
  if (produces) {
    for (int i = 0; i < S::kStages; ++i) {
      init_barrier(&shared->full[i], 1);
      init_barrier(&shared->empty[i], S::kConsumerWarps);
    }
    fence_barrier_init();
    producer.run_to(min(part.begin + S::kStages, part.end));  // before anybody else is ready
  }
  __syncthreads();
  let_next_kernel_begin();
  if (produces) producer.run_to(part.end);
  if (warp < S::kConsumerWarps) consume<S, SharedOperands<T, A, B, a_major, b_major>>(*shared, g, part, warp);
#endif
}

// How k is cut: one part for each multiprocessor, each of at least four stages.
template <class S>
struct Plan {
  int tiles_m, tiles_n, splits;
  double time;  // of the products, in stages of the wide tile

  Plan(int64_t rows, int64_t columns, int batch, int stages)
      : tiles_m(int(ceil_div(rows, S::kM))), tiles_n(int(ceil_div(columns, S::kN))) {
    const int64_t tiles = int64_t{batch} * tiles_m * tiles_n, most = std::max(stages / 4, 1);
    splits = int(std::clamp<int64_t>(multiprocessors() / tiles, 1, most));
    const int64_t turns = ceil_div(tiles * splits, multiprocessors());
    time = double(turns * ceil_div(stages, splits)) * (S::kN == 128 ? 0.56 : 1.0);
  }
};

template <class S, class T>
void launch_tiles(const Gemm<T>& g, const BoxOperands<T>& operands, int batch, const Plan<S>& plan,
                  int stages, Context& context) {
  const auto sums = split_sums(g, batch, plan.splits, context);
  const Arguments<T> arguments{sums, plan.tiles_n, SplitStages(stages, plan.splits),
                               operands.a.batch_stride != 0, operands.b.batch_stride != 0};
  const TensorMap a = operands.a.map(S::kM), b = operands.b.map(S::kN);
  const dim3 grid(unsigned(plan.tiles_m * plan.tiles_n), unsigned(batch), unsigned(plan.splits));
  operands.with_majors([&]<Major a_major, Major b_major>() {
    launch<gemm_split_k_kernel<S, T, a_major, b_major>>("split_k", {grid, dim3(S::kThreads), S::kSharedBytes},
                                                        context)(a, b, arguments);
  });
  add_splits(sums, g, context);
}

}  // namespace

void gemm_split_k(const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (sizeof(T) <= 2) {
      if (!fits_tiles(g)) return gemm_small(g, batch, context);
      RowCopies copies;
      const BoxOperands<T> operands(g, batch, copies, context);
      copies.launch({}, context);
      const int stages = int(ceil_div(g.k, 128 / int(sizeof(T))));
      const Plan<NarrowTile> narrow(g.m, g.n, batch, stages);
      const Plan<WideTile> wide(g.m, g.n, batch, stages);
      narrow.time < wide.time ? launch_tiles(g, operands, batch, narrow, stages, context)
                              : launch_tiles(g, operands, batch, wide, stages, context);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
