//   make sim KERNEL=vectorized
//
// Level 4: wide accesses. What changes from level 3: a thread computes 8 x 8 elements of a 128 x 128 block
// tile as a sum of outer products. For each k it reads 8 values of A and 8 of B in four 16-byte instructions
// and does 64 multiply-adds: one shared read for 16 of them, where level 3 has one for 2. Global memory is
// also read 16 bytes at a time, with a quarter of the requests. A is stored k-major in shared memory, as B
// is, because the 8 rows of A that a thread needs must be neighbours there. C is also written in vectors if
// its rows are aligned.
//
// 64 sums and 16 values per thread leave room for 2 blocks of 256 threads on an SM (128 registers per
// thread). While one block waits for its panels, the other computes. Nothing else hides latency before level
// 5.
#include "cuda/gemm/parts/grouped_vectors.cuh"
#include "cuda/gemm/parts/panel_copy.cuh"
#include "cuda/gemm/parts/thread_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

namespace {

constexpr int kBlock = 128, kThread = 8, kThreads = 256;  // block tile 128 x 128, thread tile 8 x 8
static_assert(kBlock / kThread * (kBlock / kThread) == kThreads);
constexpr int kUnrolledK = 16;  // steps of k: 1024 multiply-adds, 16 KB of code

template <class T>
constexpr int kBK = std::max(16, 32 / int(sizeof(T)));  // at least one 32-byte sector along k
template <class T>
using BlockPanel = PanelCopy<T, kBlock, kBK<T>, kThreads>;

template <class T>
struct alignas(16) Tiles {
  Accumulator<T> a[kBK<T> * BlockPanel<T>::kPitch];  // (BK, 128): k, m
  Accumulator<T> b[kBK<T> * BlockPanel<T>::kPitch];  // (BK, 128): k, n
};

// Blocks per multiprocessor. A thread's 64 sums of 8 bytes take 128 registers, so only one block fits. Groups
// need too many registers for two, on GPUs other than Hopper.
template <class G>
constexpr int kBlocksAnSM = sizeof(typename G::Acc) == 8 || (kIsGrouped<G> && !FASTGEMM_SM90A) ? 1 : 2;

template <class G>
__global__ void __launch_bounds__(kThreads, kBlocksAnSM<G>)
    gemm_vectorized_kernel(G batch, unsigned tiles_n, bool vectors_a, bool vectors_b,
                           ResultVectors vectors_out) {
  using T = typename G::Element;
  using Acc = Accumulator<T>;
  constexpr int kPitch = BlockPanel<T>::kPitch;
  FASTGEMM_SHARED Tiles<T> tiles;
  const auto [g, tile] = block_work<kBlock, kBlock>(batch, tiles_n);
  const ThreadPlace place = thread_place();
  const PanelSource<T> from_a{g.a.data, g.a.row_stride, g.a.col_stride, g.m, g.k, vectors_a};
  const PanelSource<T> from_b{g.b.data, g.b.col_stride, g.b.row_stride, g.n, g.k, vectors_b};

  ThreadTile<T, kThread> sums;
  for (int64_t k0 = 0; k0 < g.k; k0 += kBK<T>) {
    BlockPanel<T> a, b;
    a.load(from_a, tile.row, k0);
    b.load(from_b, tile.col, k0);
    a.store(tiles.a);
    b.store(tiles.b);
    __syncthreads();
    FASTGEMM_NO_UNROLL
    for (int k1 = 0; k1 < kBK<T>; k1 += kUnrolledK) {
      FASTGEMM_UNROLL
      for (int k = 0; k < kUnrolledK; ++k) {
        Acc rows[kThread], cols[kThread];
        sums.read(rows, tiles.a + (k1 + k) * kPitch, place.m);
        sums.read(cols, tiles.b + (k1 + k) * kPitch, place.n);
        sums.add_outer_product(rows, cols);
      }
    }
    __syncthreads();
  }
  store_thread_tile(g, vectors_out, sums, tile, place);
}

}  // namespace

void gemm_vectorized(const GemmProblem& problem, Context& context) {
  run_every_batch(problem, context, [&]<class G>(const G& g, int batch) {
    const TileGrid tiles = tile_grid(g, kBlock, kBlock, batch);
    const OperandVectors vectors = operand_vectors(g);
    launch<gemm_vectorized_kernel<G>>("vectorized", {tiles.grid, dim3(kThreads)}, context)(
        g, tiles.tiles_n, vectors.a, vectors.b, result_vectors(g.result));
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
