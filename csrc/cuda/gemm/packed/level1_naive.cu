//   make sim KERNEL=packed_naive
//
// Level 1 with weights of 4 and 8 bits: a loop that dequantizes as it reads. One thread computes one result.
// For each k it reads a code, its scale and its zero, and computes one number, (code - zero) * scale, for one
// multiply-add. A warp has neighbouring results of a row, and so 32 rows of the weight.
//
// What it gains over 16-bit weights: memory holds a quarter or half of the bytes. What is left: each weight
// is decoded again for each row of x, some 30 instructions for one multiply-add. Level 2 decodes it once for
// 32 rows.
#include "cuda/gemm/packed/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kLanes = 32, kWarps = 8;  // a block covers 8 rows of x and 32 rows of the weight

template <class T>
__global__ void __launch_bounds__(kLanes* kWarps)
    gemm_packed_naive_kernel(const __grid_constant__ PackedGemm<T> p, unsigned tiles_n) {
  const Gemm<T>& g = p.gemm;
  PackedWeight packed_weight = p.b.weight;
  packed_weight.units = true;  // known here, so that code for the plain order is left out
  const BlockTile tile = block_tile<kWarps, kLanes>(tiles_n);
  const int64_t row = tile.row + threadIdx.x / kLanes, col = tile.col + threadIdx.x % kLanes;
  if (row >= g.m || col >= g.n) return;  // no barrier follows, so a thread may leave

  float sum = 0;
  for (int64_t k = 0; k < g.k; ++k) {
    const float weight = packed::weight_at(packed_weight, p.b.units, g.k, col, k);
    sum = multiply_add(widen(*g.a.at(row, k)), weight, sum);
  }
  g.result.store(row, col, sum);
}

}  // namespace

void gemm_packed_naive(const GemmProblem& problem, Context& context) {
  run_packed_floats(problem, context, [&]<class T>(const PackedGemm<T>& p) {
    const TileGrid tiles = tile_grid(p.gemm.m, p.gemm.n, kWarps, kLanes, 1);
    launch<gemm_packed_naive_kernel<T>>("packed_naive", {tiles.grid, dim3(kLanes * kWarps)}, context)(
        p, tiles.tiles_n);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
