//   python examples/own_kernel.py
//
// One thread computes one element of C, a warp along a row of it: the least that a kernel of GEMM can be.
#include "cuda/gemm/parts/tile.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kRows = 8, kColumns = 32;  // of C, a block; a warp is a row

template <class T>
__global__ void __launch_bounds__(kRows* kColumns) gemm_mine_kernel(Gemm<T> batch, unsigned tiles_n) {
  const Gemm<T> g = batch.at_batch(blockIdx.z);
  const BlockTile tile = block_tile<kRows, kColumns>(tiles_n);
  const int64_t row = tile.row + int(threadIdx.x) / kColumns, col = tile.col + int(threadIdx.x) % kColumns;
  if (row >= g.m || col >= g.n) return;  // no barrier follows

  Accumulator<T> sum = 0;
  for (int64_t k = 0; k < g.k; ++k) sum = multiply_add(widen(*g.a.at(row, k)), widen(*g.b.at(k, col)), sum);
  g.result.store(row, col, sum);
}

}  // namespace

void gemm_mine(const GemmProblem& problem, Context& context) {
  run_every_type(problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
    const TileGrid tiles = tile_grid(g.m, g.n, kRows, kColumns, batch);
    launch<gemm_mine_kernel<T>>("mine", {tiles.grid, dim3(kRows * kColumns)}, context)(g, tiles.tiles_n);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
