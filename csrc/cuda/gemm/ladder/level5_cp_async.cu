//   make sim KERNEL=cp_async
//
// Level 5 on any GPU since sm_80: registers, occupancy, latency. What changes from level 4:
//   - a launch before this one packs operands into panels (parts/panels.cuh), so that every copy moves 16
//     aligned bytes, whatever the operand's layout and type;
//   - cp.async copies panels without going through registers: two stages are in flight while a third is
//     multiplied;
//   - the 8 x 8 sums of 32 threads form a warp tile of 64 x 32, and the fragment of the next k is read while
//     this one is multiplied;
//   - k is split if C has too few tiles for the device (predict/plans.h).
#include "cuda/device/async_copy.cuh"
#include "cuda/gemm/parts/schedules/choose_splits.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"
#include "cuda/gemm/parts/warp_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// dot4: a word has four int8 (panels.cuh), and one instruction multiplies and adds all four.
template <class Word_, bool dot4>
struct Shape {
  using Word = Word_;
  static constexpr bool kDouble = sizeof(Word) == 8;
  using Tile = WarpTile<Word, kDouble ? 4 : 8, 8, dot4>;
  static constexpr int kWarpsM = 2, kWarpsN = 4, kWarps = kWarpsM * kWarpsN, kThreads = 32 * kWarps;
  static constexpr int kM = kWarpsM * Tile::kM, kN = kWarpsN * Tile::kN;  // 128 x 128, fp64 64 x 128
  // Three stages take 48 KB, so that two blocks fit even on GPUs with 100 KB. Two blocks leave 128 registers
  // per thread, of which 64 sums and two fragments take 96. With 8-byte words the stages take 72 KB, and
  // sums and fragments 112 registers, which leaves too few for addresses: only one block.
  static constexpr int kK = kCpAsyncDepth, kStages = 3;
  static constexpr int kStageWords = kK * (kM + kN);  // (kK, kM) of A, then (kK, kN) of B
  static constexpr int kBlocksAnSM = kDouble ? 1 : 2;

  union Shared {  // the slabs are used after the ring, and take no memory of their own
    Word ring[kStages][kStageWords];
    Word slabs[kWarps][Tile::kSlabWords];
  };
};

template <class Word>
struct Arguments {
  Panels<Word> panels;
  Output<Word> out;  // if k is split: matrix s * batch + i has the sums of split s of matrix i
  int64_t m, n;
  int tiles_m, tiles_n;
  int steps, split_steps;  // stages of k, and of a split
  Word zero;               // see WarpTile::clear()
};

// Copies the (ROWS, WIDTH) part of a panel at (row0, column0), with zeros outside the panel.
template <int ROWS, int WIDTH, int THREADS, class Word>
__device__ __forceinline__ void copy_panel(Word* to, const Panel<Word>& panel, const Word* from, int64_t row0,
                                           int64_t column0) {
  constexpr int kRun = kPer16Bytes<Word>, kRuns = WIDTH / kRun, kStep = THREADS / kRuns;
  static_assert(THREADS % kRuns == 0 && ROWS % kStep == 0);
  const int column = int(threadIdx.x) % kRuns * kRun;
  const int inside =  // bytes of the unit of 16 that lie in the panel; cp.async fills the rest with zeros
      int(max(int64_t(0), min(panel.columns - column0 - column, int64_t(kRun)))) * int(sizeof(Word));
  FASTGEMM_UNROLL
  for (int i = 0; i < ROWS; i += kStep) {
    const int row = int(threadIdx.x) / kRuns + i;
    const int valid = row0 + row < panel.rows ? inside : 0;  // bytes
    const Word* p = valid ? from + (row0 + row) * panel.row_stride + column0 + column : from;
    copy_async<16>(to + row * WIDTH + column, p, valid);
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksAnSM)
    gemm_cp_async_kernel(const __grid_constant__ Arguments<typename S::Word> g) {
  using Word = typename S::Word;
  using Tile = typename S::Tile;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  // Bands of 8: the 264 blocks of an H100 read 8 tile rows of A and 33 tile columns of B at a time.
  const TilePlace<8> place(int(blockIdx.x), g.tiles_m, g.tiles_n);
  const int64_t row0 = int64_t(place.row) * S::kM, column0 = int64_t(place.column) * S::kN;
  const Word* a = g.panels.a.data + blockIdx.z * g.panels.a.batch_stride;
  const Word* b = g.panels.b.data + blockIdx.z * g.panels.b.batch_stride;
  const int first = int(blockIdx.y) * g.split_steps, end = min(first + g.split_steps, g.steps);
  const auto copy_stage = [&](int step, int slot) {
    if (step < end) {
      copy_panel<S::kK, S::kM, S::kThreads>(shared->ring[slot], g.panels.a, a, int64_t(step) * S::kK, row0);
      copy_panel<S::kK, S::kN, S::kThreads>(shared->ring[slot] + S::kK * S::kM, g.panels.b, b,
                                            int64_t(step) * S::kK, column0);
    }
    commit_async_copies();  // even if it is empty, so that each step has a group
  };

  const int warp = warp_index();
  const int row = warp % S::kWarpsM * Tile::kM,
            column = warp / S::kWarpsM * Tile::kN;  // of the warp in the tile
  Tile tile;
  tile.clear(g.zero);
  for (int i = 0; i < S::kStages - 1; ++i) copy_stage(first + i, i);
  int slot = 0, free_slot = S::kStages - 1;
  FASTGEMM_NO_UNROLL
  for (int step = first; step < end; ++step) {
    wait_async_copies<S::kStages - 2>();  // all but the newest: this stage has arrived
    __syncthreads();                      // all threads have this stage, and have read the one before
    copy_stage(step + S::kStages - 1, free_slot);
    const Word* rows = shared->ring[slot] + row + Tile::row(0);
    const Word* columns = shared->ring[slot] + S::kK * S::kM + column + Tile::column(0);
    typename Tile::Fragment fragments[2];
    Tile::load(fragments[0], rows, columns);
    FASTGEMM_UNROLL
    for (int k = 0; k < S::kK; ++k) {
      if (k + 1 < S::kK)
        Tile::load(fragments[(k + 1) % 2], rows + (k + 1) * S::kM, columns + (k + 1) * S::kN);
      tile.multiply(fragments[k % 2]);
    }
    free_slot = slot;
    if (++slot == S::kStages) slot = 0;
  }
  wait_async_copies<0>();  // only empty groups are left: no copy is under way,
  __syncthreads();         // and all warps have read the last stage, so the slabs may overwrite the ring
  tile.store(g.out.at_batch(int64_t(blockIdx.y) * gridDim.z + blockIdx.z), shared->slabs[warp], row0 + row,
             column0 + column, g.m, g.n);
}

template <class T>
void launch_cp_async(const Gemm<T>& problem, int batch, Context& context) {
  using Word = PanelWord<T>;
  using S = Shape<Word, std::is_same_v<T, int8_t>>;
  Arguments<Word> g;
  g.panels = make_panels<T>(problem, batch, {}, context);
  g.m = problem.m, g.n = problem.n;
  g.tiles_m = int(ceil_div(g.m, S::kM)), g.tiles_n = int(ceil_div(g.n, S::kN));
  g.steps = int(ceil_div(g.panels.a.rows, S::kK));
  const int tiles = g.tiles_m * g.tiles_n;
  int splits = cp_async_splits(int64_t(tiles) * batch, g.steps);
  g.split_steps = int(ceil_div(g.steps, splits));
  splits = int(ceil_div(g.steps, g.split_steps));
  const Gemm<T> part = splits > 1 ? split_result(problem, batch, splits, context) : problem;
  g.n = part.n, g.out = output_of(part);  // with splits, those of the workspace, whose rows are padded
  g.zero = 0;
  const dim3 blocks = dim3(unsigned(tiles), unsigned(splits), unsigned(batch));
  launch<gemm_cp_async_kernel<S>>("cp_async", {blocks, dim3(S::kThreads), sizeof(typename S::Shared)},
                                  context)(g);
  if (splits > 1) add_split_result(part, problem, batch, splits, context);
}

}  // namespace

void gemm_cp_async(const GemmProblem& problem, Context& context) {
  run_every_type(problem, context, [&](const auto& g, int batch) { launch_cp_async(g, batch, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
