//   make sim KERNEL=double_buffer_sync
//
// Pitfall: double buffering by hand. This is level 4's kernel with two pairs of panels: while a block
// computes with one, the loads of the next are in flight. Without asynchronous copies, each load in flight
// needs a register. With panels of 32 k these are 32 registers, and 16 more hold the values of the next k,
// which are read in advance. Together with 64 sums this is too much for 2 blocks per SM with 128 registers
// per thread: nvcc spills. With 1 block, nothing hides the time at barriers. The result is correct; the row
// takes float32. docs/pitfalls.md has the counts.
#include "cuda/gemm/parts/panel_copy.cuh"
#include "cuda/gemm/parts/thread_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

namespace {

constexpr int kBlock = 128, kBK = 32, kThreads = 256;  // block tile 128 x 128, thread tile 8 x 8
using BlockPanel = PanelCopy<float, kBlock, kBK, kThreads>;
using PanelBuffer = float[kBK * BlockPanel::kPitch];  // (32, 128)

struct DoubleBuffer {
  PanelBuffer a[2], b[2];
};
static_assert(sizeof(PanelBuffer) % 16 == 0);

__global__ void __launch_bounds__(kThreads, 2)
    gemm_double_buffer_kernel(Gemm<float> batch, unsigned tiles_n, bool vectors_a, bool vectors_b,
                              ResultVectors vectors_out) {
  FASTGEMM_DYNAMIC_SHARED(DoubleBuffer, buffers);
  const Gemm<float> g = batch.at_batch(blockIdx.z);
  const BlockTile tile = block_tile<kBlock, kBlock>(tiles_n);
  const ThreadPlace place = thread_place();
  const PanelSource<float> from_a{g.a.data, g.a.row_stride, g.a.col_stride, g.m, g.k, vectors_a};
  const PanelSource<float> from_b{g.b.data, g.b.col_stride, g.b.row_stride, g.n, g.k, vectors_b};

  ThreadTile<float, 8> sums;
  BlockPanel a, b;
  if (g.k > 0) {
    a.load(from_a, tile.row, 0), b.load(from_b, tile.col, 0);
    a.store(buffers->a[0]), b.store(buffers->b[0]);
  }
  __syncthreads();
  int current = 0;
  for (int64_t k0 = 0; k0 < g.k; k0 += kBK, current ^= 1) {
    const bool more = k0 + kBK < g.k;
    if (more) a.load(from_a, tile.row, k0 + kBK), b.load(from_b, tile.col, k0 + kBK);
    const float *panel_a = buffers->a[current], *panel_b = buffers->b[current];
    float rows[2][8], cols[2][8];  // of this k and of the next
    sums.read(rows[0], panel_a, place.m);
    sums.read(cols[0], panel_b, place.n);
    FASTGEMM_UNROLL
    for (int k = 0; k < kBK; ++k) {
      if (k + 1 < kBK) {
        sums.read(rows[(k + 1) % 2], panel_a + (k + 1) * BlockPanel::kPitch, place.m);
        sums.read(cols[(k + 1) % 2], panel_b + (k + 1) * BlockPanel::kPitch, place.n);
      }
      sums.add_outer_product(rows[k % 2], cols[k % 2]);
    }
    if (more) a.store(buffers->a[current ^ 1]), b.store(buffers->b[current ^ 1]);
    __syncthreads();
  }
  store_thread_tile(g, vectors_out, sums, tile, place);
}

}  // namespace

void gemm_double_buffer_sync(const GemmProblem& problem, Context& context) {
  run_gemm<float>(problem, context, [&](const Gemm<float>& g, int batch) {
    const TileGrid tiles = tile_grid(g.m, g.n, kBlock, kBlock, batch);
    launch<gemm_double_buffer_kernel>("double_buffer_sync",
                                      {tiles.grid, dim3(kThreads), sizeof(DoubleBuffer)}, context)(
        g, tiles.tiles_n, takes_vectors(g.a), takes_vectors(g.b), result_vectors(g.result));
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
