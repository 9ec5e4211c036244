// Level 5 on Hopper: registers, occupancy, latency. What changes from cp_async (producer_warp is a plain
// form):
//   - every thread keeps 8 x 16 sums in registers, and a warp 64 x 64. That is 128 multiply-adds for 6 loads,
//     where 8 x 8 sums have 64 for 4. It matters because loads take issue slots that multiply-adds need;
//   - a multiprocessor has one block. Most of its shared memory is a ring of stages, which the TMA fills up
//     to 128 rows of k ahead. A separate producer warp issues the copies; that is faster than an elected
//     thread of a computing warp. Its warpgroup gives its registers to the computing ones (setmaxnreg), whose
//     threads take 240 each;
//   - stream-K shares the last waves of tiles evenly (parts/schedules/stream_k.cuh).
//
// In fp32 the loop's body is one stage, 8 steps of k, about 17 KB of code. Longer bodies are slower, and
// bodies larger than the instruction cache much slower. docs/ladder.md has its speed.
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/panel_map.cuh"
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/schedules/stream_k.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"
#include "cuda/gemm/parts/warp_tile.cuh"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Block tile, thread tile, and the ring. A sum of fp64 takes two registers, so a thread has only 8 x 8 of
// them.
//
// In fp64 the register file is the limit. A DFMA takes two cycles of its scheduler. In these, two operands of
// 64 bits can be read from the register file; the third has to come from the operand cache. Every other read
// of registers, also that of a load's address, costs a cycle of arithmetic (inferred from timed variants).
// Hence the lanes of a warp are arranged as 1 x 32, all on the same rows of C:
//   - loads of A take their address from a uniform register. Only 4 loads for 64 DFMA still read the register
//     file, where 8 x 4 lanes have 8;
//   - the values that they load are uniform, too. A value that lives across a branch is moved to uniform
//     registers by the compiler, and a DFMA reads it without the register file. So the loop's body is short,
//     2 steps: every other step multiplies from uniform registers.
template <class Word_, bool dot4>
struct Shape {
  using Word = Word_;
  static constexpr bool kDouble = sizeof(Word) == 8;
  using Tile = WarpTile<Word, 8, kDouble ? 8 : 16, dot4, kDouble ? 1 : 8>;
  static constexpr int kWarpsM = kDouble ? 8 : 2, kWarpsN = kDouble ? 1 : 4, kWarps = kWarpsM * kWarpsN;
  static constexpr int kM = kWarpsM * Tile::kM, kN = kWarpsN * Tile::kN;  // 128 x 256, fp64 64 x 256
  static constexpr int kK = kDouble ? 24 : 8;                             // rows of k in a stage
  static constexpr int kSteps = kDouble ? 2 : kK;                         // rows of k in the loop's body
  static_assert(kSteps % 2 == 0 && kK % kSteps == 0, "fragments[0] begins and ends a pass of the loop");
  static constexpr int kStageWords = kK * (kM + kN);  // (kK, kM) of A, then (kK, kN) of B
  static constexpr int kStageBytes = kStageWords * int(sizeof(Word));
  static constexpr int kStages = (192 << 10) / kStageBytes;
  static constexpr int kComputeThreads = 32 * kWarps;
  static constexpr int kThreads = kComputeThreads + 128;  // plus the warpgroup of the producer warp
  static constexpr int kSums = kM * kN;
  static_assert(kM <= 256 && kN <= 256, "a box has at most 256 elements a side");

  using PartialSums = fastgemm::FASTGEMM_TARGET::PartialSums<kComputeThreads, 1>;  // see WarpTile::store

  struct Shared {
    Word ring[kStages][kStageWords];
    Word slabs[kWarps][Tile::kSlabWords];
    RingBarriers<kStages> barriers;
  };
  static_assert(sizeof(Shared) <= 227 << 10);
};

template <class Word>
struct Arguments {
  Output<Word> out;
  int64_t m, n;
  int batch_a, batch_b;  // 0 if the batch shares the operand
  Schedule<Word> schedule;
  Word zero;
  Epilogue epilogue;  // used by kernels that fuse it
};

// One warp issues the copies of all parts, in order. At the end it adds a stage beyond the matrix, which the
// TMA fills with zeros. The computing warps always load the first row of the next stage early; with that
// extra stage they need no test for the last one.
template <class S, class Word>
__device__ __forceinline__ void produce(typename S::Shared& shared, const TensorMap& a, const TensorMap& b,
                                        const Arguments<Word>& g, Parts parts) {
  const bool elected = elect_one();
  RingPosition<S::kStages> at{0, 1};  // a new slot counts as empty
  const auto fill = [&](int row, int column, int k, int batch) {
    shared.barriers.fill(at, elected, S::kStageBytes, [&](int stage, Barrier* full) {
      Word* const slot = shared.ring[stage];
      load_box(slot, &a, full, row, k, batch * g.batch_a);
      load_box(slot + S::kK * S::kM, &b, full, column, k, batch * g.batch_b);
    });
  };
  Part part;
  while (parts.next(part)) {
    const TilePlace<8> place(part.tile, g.schedule.tiles_m, g.schedule.tiles_n);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step)
      fill(place.row * S::kM, place.column * S::kN, step * S::kK, place.batch);
  }
  fill(0, 0, g.schedule.work.steps * S::kK, 0);
}

// Multiplies kSteps steps of k. While one fragment is multiplied the next one is loaded (double buffering),
// at the last step from next_a and next_b.
template <class S, class Word>
__device__ __forceinline__ void multiply_steps(typename S::Tile& tile,
                                               typename S::Tile::Fragment (&fragments)[2], const Word* a,
                                               const Word* b, const Word* next_a, const Word* next_b) {
  FASTGEMM_UNROLL
  for (int k = 0; k < S::kSteps; ++k) {
    if (k + 1 < S::kSteps)
      S::Tile::load(fragments[(k + 1) % 2], a + (k + 1) * S::kM, b + (k + 1) * S::kN);
    else
      S::Tile::load(fragments[0], next_a, next_b);
    tile.multiply(fragments[k % 2]);
  }
}

template <class S, class Word>
__device__ __forceinline__ void compute(typename S::Shared& shared, const Arguments<Word>& g, Parts parts,
                                        int warp) {
  using Tile = typename S::Tile;
  const int lane = int(threadIdx.x) % 32;
  const int row = warp % S::kWarpsM * Tile::kM,
            column = warp / S::kWarpsM * Tile::kN;  // the warp's place in the tile
  const Word* a = shared.ring[0] + row + Tile::row(0);
  const Word* b = shared.ring[0] + S::kK * S::kM + column + Tile::column(0);
  RingPosition<S::kStages> at{0, 0};
  typename Tile::Fragment fragments[2];
  Tile tile;
  using Sums = typename S::PartialSums;
  auto& sum = reinterpret_cast<Word(&)[S::kSums / S::kComputeThreads]>(tile.sum);

  wait_phase(&shared.barriers.full[0], 0);
  Tile::load(fragments[0], a, b);
  Part part;
  while (parts.next(part)) {
    tile.clear(g.zero);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      Barrier* const empty = &shared.barriers.empty[at.stage];
      const Word *next_a = a + S::kStageWords, *next_b = b + S::kStageWords;
      at.advance();
      if (at.stage == 0) next_a -= S::kStages * S::kStageWords, next_b -= S::kStages * S::kStageWords;
      wait_phase(&shared.barriers.full[at.stage], at.phase);
      FASTGEMM_NO_UNROLL
      for (int k = S::kSteps; k < S::kK; k += S::kSteps) {
        const Word *here_a = a, *here_b = b;
        a += S::kSteps * S::kM, b += S::kSteps * S::kN;
        multiply_steps<S>(tile, fragments, here_a, here_b, a, b);
      }
      multiply_steps<S>(tile, fragments, a, b, next_a, next_b);
      __syncwarp();
      if (lane == 0) arrive(empty);
      a = next_a, b = next_b;
    }
    if (part.end != g.schedule.work.steps) {
      hand_over<Sums>(g.schedule, sum, S::kSums, int(blockIdx.x), warp_index() == 0,
                      [] { named_barrier(1, S::kComputeThreads); });
      continue;
    }
    if (part.first != 0) collect<Sums>(g.schedule, sum, part, S::kSums);
    const TilePlace<8> place(part.tile, g.schedule.tiles_m, g.schedule.tiles_n);
    const Output<Word> out = g.out.at_batch(place.batch);
    const int64_t row0 = int64_t(place.row) * S::kM + row, column0 = int64_t(place.column) * S::kN + column;
    if constexpr (kFuses<S>)
      tile.store(out, shared.slabs[warp], row0, column0, g.m, g.n, [&]<class Out>(auto&& row_of) {
        finish_lines<Out, Tile::kSlabRows, Tile::kN>(g.epilogue, shared.slabs[warp], Tile::kSlabPitch, row_of,
                                                     column0, g.m, g.n);
      });
    else
      tile.store(out, shared.slabs[warp], row0, column0, g.m, g.n);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_warp_specialized_kernel(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                                 const __grid_constant__ Arguments<typename S::Word> g) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared_memory);
  typename S::Shared& shared = *shared_memory;
  if (threadIdx.x == 0) {
    shared.barriers.init(1, S::kWarps);
    fence_barrier_init();
  }
  __syncthreads();
  const int warp = warp_index();
  const Parts parts(g.schedule.work, int(blockIdx.x), int(gridDim.x));
  if (warp >= S::kWarps) {
    release_registers<24>();
    if (warp == S::kWarps) produce<S>(shared, a, b, g, parts);
  } else {
    claim_registers<240>();
    compute<S>(shared, g, parts, warp);
  }
#endif
}

template <class S, class T>
void launch_tiles(const Gemm<T>& problem, int batch, const Epilogue& epilogue, Context& context) {
  using Word = PanelWord<T>;
  Arguments<Word> g;
  g.out = output_of(problem);
  g.m = problem.m, g.n = problem.n;
  Schedule<Word>& schedule = g.schedule;
  schedule.tiles_m = int(ceil_div(problem.m, S::kM)), schedule.tiles_n = int(ceil_div(problem.n, S::kN));
  const int64_t tiles = int64_t(batch) * schedule.tiles_m * schedule.tiles_n;
  const int steps = int(ceil_div(ceil_div(problem.k, kPerWord<T>), S::kK));
  const int blocks = plans::count_blocks(tiles, steps, multiprocessors());
  const std::span<uint32_t> flags = share(schedule, tiles, steps, blocks, {2}, S::kSums, 1, context);
  g.zero = 0, g.epilogue = epilogue;
  const Panels<Word> panels = make_panels<T>(problem, batch, flags, context);
  g.batch_a = panels.a.batch_stride != 0, g.batch_b = panels.b.batch_stride != 0;
  launch<gemm_warp_specialized_kernel<S>>(
      "warp_specialized", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared)}, context)(
      map_of(panels.a, batch, S::kM, S::kK), map_of(panels.b, batch, S::kN, S::kK), g);
}

}  // namespace

void gemm_warp_specialized(const GemmProblem& problem, Context& context) {
  const Epilogue epilogue = by_rows(problem).epilogue;
  run_gemm<double, float, Half, BFloat16, int8_t, int32_t, uint8_t, int16_t>(
      problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
        using S = Shape<PanelWord<T>, std::is_same_v<T, int8_t>>;
        if constexpr (kIsHalf<T> || std::is_same_v<T, float>) {
          if (epilogue.asked()) return launch_tiles<Fusing<S>>(g, batch, epilogue, context);
        }
        launch_tiles<S>(g, batch, {}, context);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
