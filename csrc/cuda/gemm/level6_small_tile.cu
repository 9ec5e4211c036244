// Level 6 since sm_80 for small products and batches of them. What changes from mma_sync:
//   - block tiles of 64 x 64, so that 64 products of 128 x 128 x 128 are 256 blocks, and three blocks on a
//     multiprocessor, which fill each other's waits;
//   - a block asks for four stages at once, and for k up to 256 (bytes: 512) that is all it will ever need:
//     one wait, products, one store;
//   - one launch and nothing before it: no tensor maps, no flags to clear, and operands are read where they
//     lie, whatever their alignment (level6_line_copy.cuh);
//   - where there are few tiles and k is long it is cut (level6_splits.cuh).
#include "cuda/gemm/level5_choice.cuh"
#include "cuda/gemm/level6_line_copy.cuh"
#include "cuda/gemm/level6_splits.cuh"
#include "cuda/gemm/level6_warp_product.cuh"
#include "cuda/gemm/levels.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

using Tiles = TileConfig<64, 64, 32, 32, 4, 3>;

template <class T>
struct Arguments {
  Gemm<T> gemm;
  LineOperand<T> a, b;
  ResultVectors vectors;
  int tiles, tiles_n;  // of a matrix
  int stages, batch;
  SplitSums<Accumulator<T>> sums;  // of one split nothing is kept
};

template <class C, class T, bool a_along_k, bool b_along_k>
struct Kernel {
  using TileA = LineTile<T, a_along_k, C::BM, SwizzledLines<8>>;  // (BM, 128 bytes)
  using TileB = LineTile<T, b_along_k, C::BN, SwizzledLines<8>>;  // (BN, 128 bytes)
  using CopyA = LineCopy<TileA, T, C::kThreads>;
  using CopyB = LineCopy<TileB, T, C::kThreads>;
  using Warp = WarpProduct<C, T, TileA, TileB>;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  union Shared {
    unsigned char ring[C::kStages][kStageBytes];
    WarpSlab<Accumulator<T>, C::WM, C::WN> slabs[C::kWarps];
  };
};

// Multiplies what `copy_next` copies in so many stages.
template <int STAGES, int STAGE_BYTES, class Warp, class CopyNext>
__device__ __forceinline__ void multiply_all(unsigned char* ring, int stages, Warp& warp,
                                             CopyNext&& copy_next) {
  int asked = 0;
  FASTGEMM_NO_UNROLL
  for (int stage = 0; stage < stages; ++stage) {
    FASTGEMM_NO_UNROLL
    for (; asked < stage + STAGES; ++asked) {
      if (asked < stages) copy_next(ring + asked % STAGES * STAGE_BYTES);
      commit_async_copies();  // an empty group too, so that the count of groups is the count of stages
    }
    wait_async_copies<STAGES - 1>();
    __syncthreads();
    const unsigned char* const from = ring + stage % STAGES * STAGE_BYTES;
    typename Warp::Fragments fragments[2];
    FASTGEMM_UNROLL
    for (int step = 0; step <= Warp::kSteps; ++step) {
      FASTGEMM_UNROLL
      for (int i = 0; i < Warp::kM; ++i) {
        if (step < Warp::kSteps) warp.load(fragments[step % 2], from, step, i);
        if (step > 0) warp.multiply(fragments[(step + 1) % 2], i);
      }
    }
    __syncthreads();  // the stage has been read by all
  }
}

template <class C, class T, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_small_tile_kernel(const __grid_constant__ Arguments<T> g) {
  using K = Kernel<C, T, a_along_k, b_along_k>;
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  let_next_kernel_begin();
  const int index = int(blockIdx.x) / g.tiles, tile = int(blockIdx.x) % g.tiles;
  const int split = index / g.batch, batch = index % g.batch;
  const int row0 = tile / g.tiles_n * C::BM, column0 = tile % g.tiles_n * C::BN;
  const int begin = begin_of_part(g.stages, split, g.sums.splits);
  const int stages = begin_of_part(g.stages, split + 1, g.sums.splits) - begin;

  typename K::CopyA a(g.a, batch, row0, begin);
  typename K::CopyB b(g.b, batch, column0, begin);
  const int w = warp_index(), row = w % C::kWarpsM * C::WM, column = w / C::kWarpsM * C::WN;
  typename K::Warp warp(row, column);
  multiply_all<C::kStages, K::kStageBytes>(shared->ring[0], stages, warp, [&](unsigned char* stage) {
    a.copy(stage);
    b.copy(stage + K::TileA::kBytes);
  });

  if (g.sums.splits > 1) {
    const int lane = int(threadIdx.x) % 32;
    FASTGEMM_UNROLL
    for (int i = 0; i < K::Warp::kM; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < K::Warp::kN; ++j) {
        FASTGEMM_UNROLL
        for (int r = 0; r < 4; r += 2) {
          const Position p = MmaLayout<T>::c(lane, r);
          g.sums.put(split, batch, row0 + row + 16 * i + p.row, column0 + column + 8 * j + p.column,
                     warp.sum[i][j][r], warp.sum[i][j][r + 1]);
        }
      }
    }
    return;
  }
  auto& slab = shared->slabs[w];
  slab.put(warp.sum);
  __syncwarp();
  slab.store(g.gemm.at_batch(batch), g.vectors, row0 + row, column0 + column);
}

// The operand in place; bytes, which ldmatrix cannot transpose, are copied unless they lie along k.
template <class T>
LineOperand<T> operand_of(const T* data, int64_t side, int64_t k, int64_t side_stride, int64_t k_stride,
                          int64_t batch_stride, int batch, Context& context) {
  if (sizeof(T) == 1 && k > 1 && k_stride != 1) {
    const RowsOperand<T> rows =
        rows_operand<Takes::along_k>(data, side, k, side_stride, k_stride, batch_stride, batch, context);
    return line_operand(rows.data, side, k, rows.row_stride, 1, rows.batch_stride, batch);
  }
  return line_operand(data, side, k, side_stride, k_stride, batch_stride, batch);
}

// How many ways to cut k: so that every multiprocessor has a block, of at least four stages.
inline int plan_splits(int64_t tiles, int stages) {
  constexpr int kLeast = 4, kWorthIt = 16;  // stages; below, a second launch takes longer
  if (stages < kWorthIt) return 1;
  return int(std::clamp<int64_t>(multiprocessors() / tiles, 1, stages / kLeast));
}

template <class C, class T>
void launch_small_tile(const Gemm<T>& g, int batch, Context& context) {
  const TileGrid tiles = tile_grid(g.m, g.n, C::BM, C::BN, batch);
  Arguments<T> s{
      .gemm = g,
      .a = operand_of(g.a.data, g.m, g.k, g.a.row_stride, g.a.col_stride, g.a.batch_stride, batch, context),
      .b = operand_of(g.b.data, g.n, g.k, g.b.col_stride, g.b.row_stride, g.b.batch_stride, batch, context),
      .vectors = result_vectors(g.result),
      .tiles = int(tiles.grid.x),
      .tiles_n = int(tiles.tiles_n),
      .stages = int(ceil_div(g.k, 128 / int(sizeof(T)))),
      .batch = batch};
  const int splits = plan_splits(int64_t{batch} * s.tiles, s.stages);
  s.sums.splits = splits;
  if (splits > 1) s.sums = split_sums(g, batch, splits, context);
  const auto run = [&]<bool a_along_k, bool b_along_k>() {
    using K = Kernel<C, T, a_along_k, b_along_k>;
    const LaunchShape shape{dim3(unsigned(s.tiles * batch * splits)), dim3(C::kThreads),
                            sizeof(typename K::Shared)};
    launch<gemm_small_tile_kernel<C, T, a_along_k, b_along_k>>("small_tile", shape, context)(s);
  };
  if constexpr (sizeof(T) == 1) {
    run.template operator()<true, true>();
  } else if (s.a.along_k) {
    s.b.along_k ? run.template operator()<true, true>() : run.template operator()<true, false>();
  } else {
    s.b.along_k ? run.template operator()<false, true>() : run.template operator()<false, false>();
  }
  if (splits > 1) add_splits(s.sums, g, context);
}

}  // namespace

void gemm_small_tile(const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (sizeof(T) <= 2) {
      if (!fits_tiles(g)) return gemm_small(g, batch, context);
      launch_small_tile<Tiles>(g, batch, context);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
