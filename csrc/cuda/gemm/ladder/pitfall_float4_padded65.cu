//   make sim KERNEL=float4_padded65
//
// Pitfall: float4 from rows of 65 words. One word of padding avoids level 3's conflicts, so it was kept when
// the reads became float4. But only every fourth row of 65 words begins at a 16-byte boundary. In the others
// nvcc must split the vector: 3.5 shared reads per k step instead of 2. The result is correct; the row takes
// float32. docs/pitfalls.md has the counts.
//
// The companion float4_padded68 differs only in its padding, which is a whole vector.
#include "cuda/gemm/parts/thread_tile.cuh"
#include "cuda/gemm/parts/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

namespace {

constexpr int kThreads = 256;

template <int kPitch>
struct SquareTiles {
  alignas(16) float a[64 * kPitch];  // (64, 64): k, m
  alignas(16) float b[64 * kPitch];  // (64, 64): k, n
};

template <int kPitch>
__device__ __forceinline__ Vector<float, 4> read4(const float* p) {
  if constexpr (kPitch % 4 == 0) return load_vector<Vector<float, 4>>(p);
  return {p[0], p[1], p[2], p[3]};
}

template <int kPitch>
__global__ void __launch_bounds__(kThreads, 3) gemm_float4_kernel(Gemm<float> batch, unsigned tiles_n) {
  constexpr int kTile = 64;  // block tile 64 x 64, 64 of K at a time, thread tile 4 x 4
  FASTGEMM_SHARED SquareTiles<kPitch> tiles;
  const Gemm<float> g = batch.at_batch(blockIdx.z);
  const BlockTile tile = block_tile<kTile, kTile>(tiles_n);
  const ThreadPlace place = thread_place();
  const Operand<float> a_by_k{g.a.data, g.a.col_stride, g.a.row_stride, 0};

  ThreadTile<float, 4> sums;
  for (int64_t k0 = 0; k0 < g.k; k0 += kTile) {
    load_tile<kTile, kTile, kPitch, kThreads>(tiles.a, a_by_k, k0, tile.row, g.k, g.m);
    load_tile<kTile, kTile, kPitch, kThreads>(tiles.b, g.b, k0, tile.col, g.k, g.n);
    __syncthreads();
    FASTGEMM_UNROLL
    for (int k = 0; k < kTile; ++k) {
      const auto a = read4<kPitch>(tiles.a + k * kPitch + 4 * place.m);
      const auto b = read4<kPitch>(tiles.b + k * kPitch + 4 * place.n);
      sums.add_outer_product(a.v, b.v);
    }
    __syncthreads();
  }
  store_thread_tile(g, ResultVectors{false, false}, sums, tile, place);
}

template <int kPitch>
void launch_float4(const char* name, const GemmProblem& problem, Context& context) {
  run_gemm<float>(problem, context, [&](const Gemm<float>& g, int batch) {
    const TileGrid tiles = tile_grid(g.m, g.n, 64, 64, batch);
    launch<gemm_float4_kernel<kPitch>>(name, {tiles.grid, dim3(kThreads)}, context)(g, tiles.tiles_n);
  });
}

}  // namespace

void gemm_float4_padded65(const GemmProblem& p, Context& c) { launch_float4<65>("float4_padded65", p, c); }
void gemm_float4_padded68(const GemmProblem& p, Context& c) { launch_float4<68>("float4_padded68", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
