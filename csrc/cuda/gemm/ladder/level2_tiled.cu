//   make sim KERNEL=tiled
//
// Level 2: reuse in fast memory. What changes from level 1: one thread still computes one element of C, but
// the 32 x 32 threads of a block go along K together. The block copies a 32 x 32 tile of A and one of B to
// shared memory, and each thread does 32 multiply-adds with them. An element is read from global memory once
// for 32 uses, so global traffic falls to a 32nd. In every layout, both operands are read in whole sectors.
//
// What is left: a shared read of B for each multiply-add, and one of A for four, because nvcc merges these.
#include "cuda/gemm/parts/grouped_problem.cuh"
#include "cuda/gemm/parts/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

namespace {

constexpr int kTile = 32, kThreads = kTile * kTile;

// The pitches matter only when an operand with contiguous columns is copied. Its warp writes a column of the
// tile: at pitch 32 all of its words to one bank, which takes 32 wavefronts. Pitch 33 needs 1 wavefront.
// Pitch 36 needs 4, but rows of A stay 16-byte aligned, so that a thread reads four of its k in one
// instruction.
constexpr int kPitchA = kTile + 4, kPitchB = kTile + 1;

template <class Acc>
struct alignas(16) Tiles {
  Acc a[kTile * kPitchA];  // (32, 32): m, k
  Acc b[kTile * kPitchB];  // (32, 32): k, n
};

template <class G>
__global__ void __launch_bounds__(kThreads) gemm_tiled_kernel(G batch, unsigned tiles_n) {
  using T = typename G::Element;
  FASTGEMM_SHARED Tiles<Accumulator<T>> tiles;
  const auto [g, tile] = block_work<kTile, kTile>(batch, tiles_n);
  const int y = int(threadIdx.x) / kTile, x = int(threadIdx.x) % kTile;

  Accumulator<T> sum = 0;
  for (int64_t k0 = 0; k0 < g.k; k0 += kTile) {
    load_tile<kTile, kTile, kPitchA, kThreads>(tiles.a, g.a, tile.row, k0, g.m, g.k);
    load_tile<kTile, kTile, kPitchB, kThreads>(tiles.b, g.b, k0, tile.col, g.k, g.n);
    __syncthreads();  // the tiles are complete
    FASTGEMM_UNROLL
    for (int k = 0; k < kTile; ++k)
      sum = multiply_add(tiles.a[y * kPitchA + k], tiles.b[k * kPitchB + x], sum);
    __syncthreads();  // all threads have read them
  }
  // Threads outside C copied and waited at every barrier like the others, but they store nothing.
  if (tile.row + y < g.m && tile.col + x < g.n) g.result.store(tile.row + y, tile.col + x, sum);
}

}  // namespace

void gemm_tiled(const GemmProblem& problem, Context& context) {
  run_every_batch(problem, context, [&]<class G>(const G& g, int batch) {
    const TileGrid tiles = tile_grid(g, kTile, kTile, batch);
    launch<gemm_tiled_kernel<G>>("tiled", {tiles.grid, dim3(kThreads)}, context)(g, tiles.tiles_n);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
