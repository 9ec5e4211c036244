//   make sim KERNEL=thread_tile
//
// Level 3: several outputs per thread, from shared memory without bank conflicts. What changes from level 2:
// a thread computes 4 x 4 elements of a 64 x 64 block tile. For each k it reads 4 + 4 values and does 16
// multiply-adds, 0.5 shared reads for each instead of 1.25.
//
// Shared memory has 32 banks. Neighbouring words of 4 bytes lie in neighbouring banks. If the lanes of a warp
// read different words of one bank, the read takes a wavefront for each word. A warp is 4 x 8 threads, so for
// each k it reads four rows of the tile of A. The tile has 32 values of k in a row. With a pitch (the words
// from row to row) of 32, all rows begin in bank 0. One word of padding moves each row to the next bank:
//
//   bank of A(row, k) = (row * pitch + k) mod 32
//     pitch 32:  k mod 32, one bank for all rows        pitch 33:  (row + k) mod 32, another for each row
//
// The companion thread_tile_unpadded differs only in the padding. Each read of A takes 4 wavefronts instead
// of 1, so a step of k takes 4 * 4 + 4 = 20 wavefronts instead of 4 + 4 = 8. A warp that copies a transposed
// operand writes 32 rows of one column: without padding, all 32 words lie in one bank.
#include "cuda/gemm/parts/grouped_problem.cuh"
#include "cuda/gemm/parts/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

namespace {

// The block tile. With 32 values of k, a warp copies a whole row of the tile of A: 128 bytes of float32.
constexpr int kBM = 64, kBN = 64, kBK = 32;
constexpr int kTM = 4, kTN = 4;  // thread tile
// 16 x 16 threads. A thread's rows are 16 apart, and its columns are, too. So neighbouring threads have
// neighbouring elements, and 8 lanes store a whole sector of C at a time (thread_place() in tile_grid.cuh).
constexpr int kThreads = 256, kStep = 16;
static_assert(kBM == kTM * kStep && kBN == kTN * kStep && kThreads == kStep * kStep);

template <class Acc, int padding>
struct Tiles {
  // Rows of b are read along n, without conflicts at any pitch. b is padded for copies of a transposed B.
  static constexpr int kPitchA = kBK + padding, kPitchB = kBN + padding;
  Acc a[kBM * kPitchA];  // (64, 32): m, k
  Acc b[kBK * kPitchB];  // (32, 64): k, n
};

// Blocks per multiprocessor, the second bound of the kernel. Without it, nvcc keeps more loads of the copy in
// flight and takes about 118 registers, so only 2 blocks fit. Groups need too many registers for 3. With
// 8-byte types a block has 33 KB of shared memory, so 3 blocks do not fit on GPUs with 100 KB.
template <class G>
constexpr int kResident = kIsGrouped<G> || (sizeof(typename G::Element) == 8 && !FASTGEMM_SM90A) ? 2 : 3;

template <class G, int padding>
__global__ void __launch_bounds__(kThreads, kResident<G>) gemm_thread_tile_kernel(G batch, unsigned tiles_n) {
  using Acc = typename G::Acc;
  using Shared = Tiles<Acc, padding>;
  FASTGEMM_SHARED Shared tiles;
  const auto [g, tile] = block_work<kBM, kBN>(batch, tiles_n);
  const ThreadPlace place = thread_place();

  Acc sum[kTM][kTN] = {};
  for (int64_t k0 = 0; k0 < g.k; k0 += kBK) {
    load_tile<kBM, kBK, Shared::kPitchA, kThreads>(tiles.a, g.a, tile.row, k0, g.m, g.k);
    load_tile<kBK, kBN, Shared::kPitchB, kThreads>(tiles.b, g.b, k0, tile.col, g.k, g.n);
    __syncthreads();
    // The loop is not unrolled: nvcc would merge four k of the unpadded tile into one 16-byte read, which is
    // the idea of level 4.
    FASTGEMM_NO_UNROLL
    for (int k = 0; k < kBK; ++k) {
      Acc a[kTM], b[kTN];
      FASTGEMM_UNROLL
      for (int i = 0; i < kTM; ++i) a[i] = tiles.a[(place.m + kStep * i) * Shared::kPitchA + k];
      FASTGEMM_UNROLL
      for (int j = 0; j < kTN; ++j) b[j] = tiles.b[k * Shared::kPitchB + place.n + kStep * j];
      FASTGEMM_UNROLL
      for (int i = 0; i < kTM; ++i) {
        FASTGEMM_UNROLL
        for (int j = 0; j < kTN; ++j) sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
      }
    }
    __syncthreads();
  }

  FASTGEMM_UNROLL
  for (int i = 0; i < kTM; ++i) {
    const int64_t row = tile.row + place.m + kStep * i;
    FASTGEMM_UNROLL
    for (int j = 0; j < kTN; ++j) {
      const int64_t col = tile.col + place.n + kStep * j;
      if (row < g.m && col < g.n) g.result.store(row, col, sum[i][j]);
    }
  }
}

template <int padding>
void launch_thread_tile(const char* name, const GemmProblem& problem, Context& context) {
  run_every_batch(problem, context, [&]<class G>(const G& g, int batch) {
    const TileGrid tiles = tile_grid(g, kBM, kBN, batch);
    launch<gemm_thread_tile_kernel<G, padding>>(name, {tiles.grid, dim3(kThreads)}, context)(g,
                                                                                             tiles.tiles_n);
  });
}

}  // namespace

void gemm_thread_tile(const GemmProblem& p, Context& c) { launch_thread_tile<1>("thread_tile", p, c); }
void gemm_thread_tile_unpadded(const GemmProblem& p, Context& c) {
  launch_thread_tile<0>("thread_tile_unpadded", p, c);
}

}  // namespace fastgemm::FASTGEMM_TARGET
