//   make sim KERNEL=naive
//
// Level 1: parallelism. One thread computes one element of C. The threads of a warp have neighbouring
// elements of a row of C, so a warp reads 32 neighbouring elements of B at a time (for row-major B: 128
// contiguous bytes, 4 sectors per request) and broadcasts one element of A.
//
// The companion naive_uncoalesced differs in one line: its warp goes down a column of C. The 32 lanes read A
// and write C in 32 different rows: 32 sectors per request, of which 4 bytes each are used.
//
// What is left: two loads for each multiply-add. A is read n times, B m times. Level 2 reads them less often.
//
// G: a product, a batch or groups (parts/grouped_problem.cuh). block_work() finds a block's product and tile.
#include "cuda/gemm/parts/grouped_problem.cuh"
#include "cuda/gemm/parts/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

namespace {

constexpr int kLanes = 32, kWarps = 8;

// A block covers 8 x 32 elements of C, or 32 x 8.
template <bool coalesced>
constexpr int kBM = coalesced ? kWarps : kLanes;
template <bool coalesced>
constexpr int kBN = coalesced ? kLanes : kWarps;

template <class G, bool coalesced>
__global__ void __launch_bounds__(kLanes* kWarps) gemm_naive_kernel(G batch, unsigned tiles_n) {
  using T = typename G::Element;
  const auto [g, tile] = block_work<kBM<coalesced>, kBN<coalesced>>(batch, tiles_n);
  const int lane = int(threadIdx.x) % kLanes, warp = int(threadIdx.x) / kLanes;
  const int64_t row = tile.row + (coalesced ? warp : lane);
  const int64_t col = tile.col + (coalesced ? lane : warp);
  if (row >= g.m || col >= g.n) return;  // no barrier follows, so a thread may leave

  Accumulator<T> sum = 0;
  for (int64_t k = 0; k < g.k; ++k) sum = multiply_add(widen(*g.a.at(row, k)), widen(*g.b.at(k, col)), sum);
  g.result.store(row, col, sum);
}

template <bool coalesced>
void launch_naive(const char* name, const GemmProblem& problem, Context& context) {
  run_every_batch(problem, context, [&]<class G>(const G& g, int batch) {
    const TileGrid tiles = tile_grid(g, kBM<coalesced>, kBN<coalesced>, batch);
    launch<gemm_naive_kernel<G, coalesced>>(name, {tiles.grid, dim3(kLanes * kWarps)}, context)(
        g, tiles.tiles_n);
  });
}

}  // namespace

void gemm_naive(const GemmProblem& p, Context& c) { launch_naive<true>("naive", p, c); }
void gemm_naive_uncoalesced(const GemmProblem& p, Context& c) {
  launch_naive<false>("naive_uncoalesced", p, c);
}

}  // namespace fastgemm::FASTGEMM_TARGET
