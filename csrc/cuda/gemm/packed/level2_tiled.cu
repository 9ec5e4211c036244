//   make sim KERNEL=packed_tiled
//
// Level 2 with weights of 4 and 8 bits: decoded tiles in shared memory. What changes from level 1: 32 x 32
// threads go along k together. Each of them decodes one weight of a 32 x 32 tile, which 32 threads of the
// block then read as float32. So a weight is decoded once for 32 rows of x, and an element of x is read from
// global memory once for 32 rows of the weight.
//
// What is left: there are two shared reads for each multiply-add, as in the ladder of matrices. A scale and a
// zero are read for each code, although 16 codes or more share them.
#include "cuda/gemm/packed/problem.cuh"
#include "cuda/gemm/parts/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kTile = 32, kThreads = kTile * kTile;
constexpr int kPitchX = kTile + 4, kPitchW = kTile + 1;  // ladder/level2_tiled.cu says why

struct alignas(16) Tiles {
  float x[kTile * kPitchX];  // (32, 32): m, k
  float w[kTile * kPitchW];  // (32, 32): k, n
};

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_packed_tiled_kernel(const __grid_constant__ PackedGemm<T> p, unsigned tiles_n) {
  FASTGEMM_SHARED Tiles tiles;
  const Gemm<T>& g = p.gemm;
  PackedWeight packed_weight = p.b.weight;
  packed_weight.units = true;  // known here, so that code for the plain order is left out
  const BlockTile tile = block_tile<kTile, kTile>(tiles_n);
  const int y = int(threadIdx.x) / kTile, x = int(threadIdx.x) % kTile;

  float sum = 0;
  for (int64_t k0 = 0; k0 < g.k; k0 += kTile) {
    load_tile<kTile, kTile, kPitchX, kThreads>(tiles.x, g.a, tile.row, k0, g.m, g.k);
    // A warp decodes 32 columns of a row, whose codes lie in few sectors, and writes them down a column of
    // the tile: 33 words apart, so in 32 banks.
    const int64_t n = tile.col + y, k = k0 + x;
    tiles.w[x * kPitchW + y] =
        n < g.n && k < g.k ? packed::weight_at(packed_weight, p.b.units, g.k, n, k) : 0.0f;
    __syncthreads();  // the tiles are complete
    FASTGEMM_UNROLL
    for (int i = 0; i < kTile; ++i)
      sum = multiply_add(tiles.x[y * kPitchX + i], tiles.w[i * kPitchW + x], sum);
    __syncthreads();  // all threads have read them
  }
  if (tile.row + y < g.m && tile.col + x < g.n) g.result.store(tile.row + y, tile.col + x, sum);
}

}  // namespace

void gemm_packed_tiled(const GemmProblem& problem, Context& context) {
  run_packed_floats(problem, context, [&]<class T>(const PackedGemm<T>& p) {
    const TileGrid tiles = tile_grid(p.gemm.m, p.gemm.n, kTile, kTile, 1);
    launch<gemm_packed_tiled_kernel<T>>("packed_tiled", {tiles.grid, dim3(kThreads)}, context)(p,
                                                                                               tiles.tiles_n);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
