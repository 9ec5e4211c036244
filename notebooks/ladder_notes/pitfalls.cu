// Products with the mistakes of docs/pitfalls.md, for notebook 05: each launcher commits one. In all of them
// a block of kTile x kTile threads computes a tile of C, and what is not marked is right.
#include <stdexcept>
#include <string>

#include "cuda/device/mma.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/tile.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kTile = 16, kThreads = kTile * kTile;

enum class Mistake { none, early_return, loop_to_grid };

template <class T, Mistake mistake>
__global__ void __launch_bounds__(kThreads) product(Gemm<T> batch, unsigned tiles_n) {
  using Acc = Accumulator<T>;
  FASTGEMM_SHARED Acc a[kTile][kTile];
  FASTGEMM_SHARED Acc b[kTile][kTile];
  const Gemm<T> g = batch.at_batch(blockIdx.z);
  const BlockTile tile = block_tile<kTile, kTile>(tiles_n);
  const int x = int(threadIdx.x) % kTile, y = int(threadIdx.x) / kTile;
  const int64_t row = tile.row + y, col = tile.col + x;
  if (mistake == Mistake::early_return && (row >= g.m || col >= g.n)) return;

  // tiles_n is what gridDim.x is in a grid of two dimensions: the tiles along N.
  const int64_t tiles = mistake == Mistake::loop_to_grid ? tiles_n : (g.k + kTile - 1) / kTile;
  Acc sum = 0;
  for (int64_t k0 = 0; k0 < tiles * kTile; k0 += kTile) {
    a[y][x] = row < g.m && k0 + x < g.k ? widen(*g.a.at(row, k0 + x)) : Acc(0);
    b[y][x] = k0 + y < g.k && col < g.n ? widen(*g.b.at(k0 + y, col)) : Acc(0);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum = multiply_add(a[y][k], b[k][x], sum);
    __syncthreads();
  }
  if (row < g.m && col < g.n) g.result.store(row, col, sum);
}

// A padded tile of A, read four elements at a time through a cast that promises alignment. float32.
template <int pitch>
__global__ void __launch_bounds__(kThreads) vectors_of_padded_rows(Gemm<float> batch, unsigned tiles_n) {
  alignas(16) FASTGEMM_SHARED float a[kTile][pitch];
  FASTGEMM_SHARED float b[kTile][kTile];
  const Gemm<float> g = batch.at_batch(blockIdx.z);
  const BlockTile tile = block_tile<kTile, kTile>(tiles_n);
  const int x = int(threadIdx.x) % kTile, y = int(threadIdx.x) / kTile;
  const int64_t row = tile.row + y, col = tile.col + x;

  float sum = 0;
  for (int64_t k0 = 0; k0 < g.k; k0 += kTile) {
    a[y][x] = row < g.m && k0 + x < g.k ? *g.a.at(row, k0 + x) : 0;
    b[y][x] = k0 + y < g.k && col < g.n ? *g.b.at(k0 + y, col) : 0;
    __syncthreads();
    for (int k = 0; k < kTile; k += 4) {
      const auto four = load_vector<Vector<float, 4>>(&a[y][k]);
      for (int i = 0; i < 4; ++i) sum = multiply_add(four[i], b[k + i][x], sum);
    }
    __syncthreads();
  }
  if (row < g.m && col < g.n) g.result.store(row, col, sum);
}

// float64 by the tensor cores' m8n8k4, one warp for a tile of 8 x 8. The mistake: lane l stores row l % 8,
// not l / 4.
template <bool wrong>
__global__ void __launch_bounds__(32) fragments(Gemm<double> batch, unsigned tiles_n) {
  const Gemm<double> g = batch.at_batch(blockIdx.z);
  const BlockTile tile = block_tile<8, 8>(tiles_n);
  const int lane = int(threadIdx.x), row = lane / 4, col = lane % 4;
  double sum[2] = {};
  for (int64_t k = 0; k < g.k; k += 4) {
    const double a[] = {tile.row + row < g.m && k + col < g.k ? *g.a.at(tile.row + row, k + col) : 0};
    const double b[] = {k + col < g.k && tile.col + row < g.n ? *g.b.at(k + col, tile.col + row) : 0};
    mma_f64<8, 4>(sum, a, b);
  }
  const int64_t i = tile.row + (wrong ? lane % 8 : row), j = tile.col + 2 * (wrong ? lane / 8 : col);
  for (int e = 0; e < 2; ++e)
    if (i < g.m && j + e < g.n) g.result.store(i, j + e, sum[e]);
}

// int8, one thread for an element. The mistake: bytes are taken for unsigned.
template <bool wrong>
__global__ void __launch_bounds__(kThreads) bytes(Gemm<int8_t> batch, unsigned tiles_n) {
  const Gemm<int8_t> g = batch.at_batch(blockIdx.z);
  const BlockTile tile = block_tile<kTile, kTile>(tiles_n);
  const int64_t row = tile.row + threadIdx.x / kTile, col = tile.col + threadIdx.x % kTile;
  if (row >= g.m || col >= g.n) return;
  uint32_t sum = 0;
  for (int64_t k = 0; k < g.k; ++k) {
    const int8_t a = *g.a.at(row, k), b = *g.b.at(k, col);
    sum += wrong ? uint32_t(uint8_t(a)) * uint8_t(b) : uint32_t(int(a) * int(b));
  }
  g.result.store(row, col, sum);
}

// Launches a kernel that exists for one element type only.
template <class Only, auto kernel, int tile, int threads>
void launch_for(const char* name, const GemmProblem& problem, Context& context) {
  run_every_type(problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (std::is_same_v<T, Only>) {
      const TileGrid tiles = tile_grid(g.m, g.n, tile, tile, batch);
      launch<kernel>(name, {tiles.grid, dim3(threads)}, context)(g, tiles.tiles_n);
    } else {
      throw std::invalid_argument(std::string(name) + " is written for another element type");
    }
  });
}

}  // namespace

void gemm_tile16(const GemmProblem& p, Context& c) {
  launch_for<float, product<float, Mistake::none>, kTile, kThreads>("tile16", p, c);
}
void gemm_early_return(const GemmProblem& p, Context& c) {
  launch_for<float, product<float, Mistake::early_return>, kTile, kThreads>("early_return", p, c);
}
void gemm_loop_to_grid(const GemmProblem& p, Context& c) {
  launch_for<float, product<float, Mistake::loop_to_grid>, kTile, kThreads>("loop_to_grid", p, c);
}
void gemm_cast_padded17(const GemmProblem& p, Context& c) {
  launch_for<float, vectors_of_padded_rows<17>, kTile, kThreads>("cast_padded17", p, c);
}
void gemm_cast_padded20(const GemmProblem& p, Context& c) {
  launch_for<float, vectors_of_padded_rows<20>, kTile, kThreads>("cast_padded20", p, c);
}
void gemm_fragments(const GemmProblem& p, Context& c) {
  launch_for<double, fragments<false>, 8, 32>("fragments", p, c);
}
void gemm_wrong_fragments(const GemmProblem& p, Context& c) {
  launch_for<double, fragments<true>, 8, 32>("wrong_fragments", p, c);
}
void gemm_bytes(const GemmProblem& p, Context& c) {
  launch_for<int8_t, bytes<false>, kTile, kThreads>("bytes", p, c);
}
void gemm_unsigned_bytes(const GemmProblem& p, Context& c) {
  launch_for<int8_t, bytes<true>, kTile, kThreads>("unsigned_bytes", p, c);
}

}  // namespace fastgemm::FASTGEMM_TARGET
