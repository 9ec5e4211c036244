//   make sim KERNEL=packed_thread_tile
//
// Level 3 with weights of 4 and 8 bits: several results a thread. What changes from level 2: a thread
// computes 4 x 4 results of a 64 x 64 block tile, so it reads 8 values for 16 multiply-adds, and a weight is
// decoded once for 64 rows of x. A thread decodes 8 neighbours of a row. They share one scale and one zero,
// which it reads once and applies on the way into the tile: the inner loop is that of float32 matrices. The
// block tile has the rows of one unit, so that addresses inside a unit are computed once a tile.
//
// What is left: every code is read by itself, as a byte, and decoded by a table or a branch. Level 4 reads up
// to 32 codes at once, in their order in memory, and decodes two at a time by a few bit operations.
#include "cuda/gemm/packed/problem.cuh"
#include "cuda/gemm/parts/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 64, kBN = packed::kRows, kBK = 32;  // block tile
constexpr int kTM = 4, kTN = 4;                         // thread tile
constexpr int kThreads = 256, kStep = 16;               // 16 x 16 threads; a thread's results are 16 apart
constexpr int kNeighbours = 8;                          // columns of the weight that a thread decodes
constexpr int kPitchX = kBK + 1, kPitchW = kBN + 1;
static_assert(kBM == kTM * kStep && kBN == kTN * kStep && kBN * kBK == kNeighbours * kThreads);
static_assert(packed::kColumns % kBK == 0, "a tile lies in one unit");

struct Tiles {
  float x[kBM * kPitchX];  // (64, 32): m, k
  float w[kBK * kPitchW];  // (32, 64): k, n
};

// Decodes rows [n0, n0 + 64) and columns [k0, k0 + 32) of the weight; zeros outside of it. A warp has one
// group of columns and 32 rows, and writes them side by side.
__device__ __forceinline__ void decode_tile(float* tile /* (32, 64) */, const PackedOperand& b, int64_t n0,
                                            int64_t k0) {
  const int r = int(threadIdx.x) % kBN, first = int(threadIdx.x) / kBN * kNeighbours;
  const UnitView unit = b.unit_at(n0, k0);
  const int c = int(k0 % packed::kColumns) + first;
  const int columns = n0 + r < b.n ? inside(b.k, k0 + first, kNeighbours) : 0;
  float scale = 0, zero = 0;
  if (columns > 0) {
    const int64_t i = b.scale_index(unit, r, c);
    scale = packed::scale_at(b.weight.scale, unit.scales, i);
    zero = packed::zero_at(b.weight, unit.zeros, i);
  }
  const unsigned mask = bits_of(b.weight.code) == 4 ? 15u : 255u;
  FASTGEMM_UNROLL
  for (int j = 0; j < kNeighbours; ++j) {
    float number = 0;
    if (j < columns) {
      const packed::Place at = packed::place_in_unit(b.weight.code, r, c + j);
      const float code = packed::decode(b.weight.code, unit.codes[at.byte] >> at.bit & mask);
      number = packed::weight_of(b.weight, code, scale, zero);
    }
    tile[(first + j) * kPitchW + r] = number;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_packed_thread_tile_kernel(const __grid_constant__ PackedGemm<T> p, unsigned tiles_n) {
  FASTGEMM_SHARED Tiles tiles;
  const Gemm<T>& g = p.gemm;
  const BlockTile tile = block_tile<kBM, kBN>(tiles_n);
  const ThreadPlace place = thread_place();

  float sum[kTM][kTN] = {};
  for (int64_t k0 = 0; k0 < g.k; k0 += kBK) {
    load_tile<kBM, kBK, kPitchX, kThreads>(tiles.x, g.a, tile.row, k0, g.m, g.k);
    decode_tile(tiles.w, p.b, tile.col, k0);
    __syncthreads();
    FASTGEMM_NO_UNROLL
    for (int k = 0; k < kBK; ++k) {
      float x[kTM], w[kTN];
      FASTGEMM_UNROLL
      for (int i = 0; i < kTM; ++i) x[i] = tiles.x[(place.m + kStep * i) * kPitchX + k];
      FASTGEMM_UNROLL
      for (int j = 0; j < kTN; ++j) w[j] = tiles.w[k * kPitchW + place.n + kStep * j];
      FASTGEMM_UNROLL
      for (int i = 0; i < kTM; ++i) {
        FASTGEMM_UNROLL
        for (int j = 0; j < kTN; ++j) sum[i][j] = multiply_add(x[i], w[j], sum[i][j]);
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

}  // namespace

void gemm_packed_thread_tile(const GemmProblem& problem, Context& context) {
  run_packed_floats(problem, context, [&]<class T>(const PackedGemm<T>& p) {
    const TileGrid tiles = tile_grid(p.gemm.m, p.gemm.n, kBM, kBN, 1);
    launch<gemm_packed_thread_tile_kernel<T>>("packed_thread_tile", {tiles.grid, dim3(kThreads)}, context)(
        p, tiles.tiles_n);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
