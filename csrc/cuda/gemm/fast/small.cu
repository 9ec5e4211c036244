// Level 5 for products too small to fill large tiles: one launch, 64 x 64 tiles, operands read where they
// lie. The pieces are those of level 4; what is new is that the panels of the next k are on their way, in
// registers, while those in shared memory are multiplied (two buffers, one barrier a panel), and that k is
// split where there are fewer tiles than multiprocessors.
#include "cuda/gemm/parts/choose_splits.cuh"
#include "cuda/gemm/parts/panel_copy.cuh"
#include "cuda/gemm/parts/split_k.cuh"
#include "cuda/gemm/parts/thread_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBlock = 64, kThread = 4, kThreads = 256;  // block tile 64 x 64, thread tile 4 x 4
static_assert(kBlock / kThread * (kBlock / kThread) == kThreads);

template <class T>
constexpr int kBK = sizeof(T) == 1 ? 64 : 32;  // one 16-byte load an operand and thread, at least
constexpr int kUnrolledK = 8;                  // little code: a small product meets a cold instruction cache
template <class T>
using BlockPanel = PanelCopy<T, kBlock, kBK<T>, kThreads>;

template <class T>
struct alignas(16) Buffers {
  Accumulator<T> a[2][kBK<T> * BlockPanel<T>::kPitch];  // (BK, 64): k, m
  Accumulator<T> b[2][kBK<T> * BlockPanel<T>::kPitch];  // (BK, 64): k, n
};

template <class T>
struct SmallArguments {
  Gemm<T> gemm;
  unsigned tiles_n;
  int64_t k_split;       // of each blockIdx.y
  int64_t split_stride;  // matrices of the result between splits
  int64_t columns;       // of the result: also those beyond n that fill a row of sums
  bool vectors_a, vectors_b;
  ResultVectors vectors_out;
};

template <class T>
__global__ void __launch_bounds__(kThreads) gemm_small_kernel(const __grid_constant__ SmallArguments<T> s) {
  using Acc = Accumulator<T>;
  constexpr int kPitch = BlockPanel<T>::kPitch;
  FASTGEMM_DYNAMIC_SHARED(Buffers<T>, buffers);
  Gemm<T> g = s.gemm.at_batch(blockIdx.z);
  g.result.out = static_cast<char*>(g.result.out) +
                 blockIdx.y * s.split_stride * g.result.batch_stride * g.result.out_bytes();
  const BlockTile tile = block_tile<kBlock, kBlock>(s.tiles_n);
  const ThreadPlace place = thread_place();
  const int64_t k_begin = blockIdx.y * s.k_split, k_end = min(g.k, k_begin + s.k_split);
  const PanelSource<T> from_a{g.a.data, g.a.row_stride, g.a.col_stride, g.m, k_end, s.vectors_a};
  const PanelSource<T> from_b{g.b.data, g.b.col_stride, g.b.row_stride, g.n, k_end, s.vectors_b};

  ThreadTile<T, kThread> sums;
  BlockPanel<T> a, b;
  a.load(from_a, tile.row, k_begin);
  b.load(from_b, tile.col, k_begin);
  int current = 0;
  for (int64_t k0 = k_begin; k0 < k_end; k0 += kBK<T>, current ^= 1) {
    a.store(buffers->a[current]);
    b.store(buffers->b[current]);
    __syncthreads();  // and the other buffer has been read by all
    a.load(from_a, tile.row, min(k0 + kBK<T>, k_end));
    b.load(from_b, tile.col, min(k0 + kBK<T>, k_end));
    FASTGEMM_NO_UNROLL
    for (int k1 = 0; k1 < kBK<T>; k1 += kUnrolledK) {
      FASTGEMM_UNROLL
      for (int k = k1; k < k1 + kUnrolledK; ++k) {
        Acc rows[kThread], cols[kThread];
        sums.read(rows, buffers->a[current] + k * kPitch, place.m);
        sums.read(cols, buffers->b[current] + k * kPitch, place.n);
        sums.add_outer_product(rows, cols);
      }
    }
  }
  g.n = s.columns;
  store_thread_tile(g, s.vectors_out, sums, tile, place);
}

template <class T>
void launch_small(const Gemm<T>& g, int batch, Context& context) {
  const TileGrid tiles = tile_grid(g.m, g.n, kBlock, kBlock, batch);
  constexpr int kLeastSplit = 2 * kBK<T>, kLeastK = 4 * kLeastSplit;  // below, a second launch costs more
  const int splits = g.k < kLeastK ? 1 : choose_splits(int64_t(tiles.grid.x) * batch, g.k, kLeastSplit);
  SmallArguments<T> s{.gemm = g,
                      .tiles_n = tiles.tiles_n,
                      .k_split = ceil_div(ceil_div(g.k, splits), kBK<T>) * kBK<T>,
                      .split_stride = batch,
                      .columns = g.n,
                      .vectors_a = takes_vectors(g.a),
                      .vectors_b = takes_vectors(g.b)};
  LaunchShape shape{tiles.grid, dim3(kThreads), sizeof(Buffers<T>)};
  SplitSums<Accumulator<T>> sums{};
  if (splits > 1) {
    shape.grid.y = unsigned(splits);
    sums = split_sums(g, batch, splits, context);
    s.gemm.result = result_in<T>(sums), s.columns = sums.pitch;
  }
  s.vectors_out = result_vectors(s.gemm.result);
  launch<gemm_small_kernel<T>>("small", shape, context)(s);
  if (splits > 1) add_splits(sums, g, context);
}

}  // namespace

void gemm_small(const GemmProblem& problem, Context& context) {
  run_every_type(problem, context, [&](const auto& g, int batch) { launch_small(g, batch, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
