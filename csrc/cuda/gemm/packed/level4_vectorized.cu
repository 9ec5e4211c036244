//   make sim KERNEL=packed_vectorized
//
// Level 4 with weights of 4 and 8 bits: wide accesses. What changes from level 3:
//   - a thread reads 16 bytes of codes in the order of a unit: 32 or 16 codes, in one request for whole
//     lines. Level 3 has a request for each byte;
//   - bit operations decode two codes at once: a code of 4 bits as the low bits of a mantissa is the number
//     1024 + code, and one subtraction leaves the code (packed/fragments.cuh). Only nf4 needs a table;
//   - a scale becomes float32 once for each row and group, and not again for every 8 codes;
//   - a thread computes 8 x 4 results as a sum of outer products, with three 16-byte reads of shared memory
//     for 32 multiply-adds.
//
// What is left: no copy is in flight while a block multiplies. Level 5 requests tiles ahead.
#include "cuda/gemm/packed/thread_sums.cuh"
#include "cuda/gemm/packed/weight_tile.cuh"
#include "cuda/gemm/parts/panel_copy.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = ThreadSums::kBM, kBN = WeightTile::kN, kBK = WeightTile::kK, kThreads = 128;
static_assert(kThreads == WeightTile::kThreads && kThreads == ThreadSums::kThreads && kBN == ThreadSums::kBN);

template <class T>
using Panel = PanelCopy<T, kBM, kBK, kThreads>;

template <class T>
struct alignas(16) Tiles {
  WeightTile weight;
  float x[kBK * Panel<T>::kPitch];  // (64, 64): k, m
};

// Sum i of a thread belongs to this row: two runs of 4 rows.
__device__ __forceinline__ int row_of(int i) {
  return i / 4 * 4 * ThreadSums::kPlacesM + ThreadSums::place_m() * 4 + i % 4;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 3)
    gemm_packed_vectorized_kernel(const __grid_constant__ PackedGemm<T> p, unsigned tiles_n, bool vectors_x,
                                  ResultVectors vectors_out) {
  FASTGEMM_SHARED Tiles<T> tiles;
  const Gemm<T>& g = p.gemm;
  const BlockTile tile = block_tile<kBM, kBN>(tiles_n);
  const PanelSource<T> from_x{g.a.data, g.a.row_stride, 1, g.m, g.k, vectors_x};
  tiles.weight.init();

  ThreadSums sums;
  for (int64_t k0 = 0; k0 < g.k; k0 += kBK) {
    const UnitView unit = p.b.unit_at(tile.col, k0);
    const int column = int(k0 % packed::kColumns);
    Panel<T> x;
    x.load(from_x, tile.row, k0);
    tiles.weight.read_scales(p.b, unit, column);
    x.store(tiles.x);
    __syncthreads();  // the scales are there
    tiles.weight.decode(p.b, unit.codes + WeightTile::first_code(p.b.weight.code, column));
    __syncthreads();  // the tiles are complete
    FASTGEMM_NO_UNROLL
    for (int k1 = 0; k1 < kBK; k1 += 8) {
      FASTGEMM_UNROLL
      for (int k = k1; k < k1 + 8; ++k) {
        float rows[ThreadSums::kM];
        FASTGEMM_UNROLL
        for (int i = 0; i < ThreadSums::kM; i += 4) {
          const auto run = load_vector<Vector16<float>>(&tiles.x[k * Panel<T>::kPitch + row_of(i)]);
          FASTGEMM_UNROLL
          for (int e = 0; e < 4; ++e) rows[i + e] = run[e];
        }
        sums.add_outer_product(rows,
                               load_vector<Vector16<float>>(
                                   &tiles.weight.w[k * WeightTile::kPitch + ThreadSums::place_n() * 4]));
      }
    }
    __syncthreads();
  }
  sums.store(g, vectors_out, tile, row_of);
}

}  // namespace

void gemm_packed_vectorized(const GemmProblem& problem, Context& context) {
  run_packed_floats(problem, context, [&]<class T>(const PackedGemm<T>& p) {
    const Gemm<T>& g = p.gemm;
    const TileGrid tiles = tile_grid(g.m, g.n, kBM, kBN, 1);
    launch<gemm_packed_vectorized_kernel<T>>("packed_vectorized", {tiles.grid, dim3(kThreads)}, context)(
        p, tiles.tiles_n, takes_vectors(g.a), result_vectors(g.result));
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
