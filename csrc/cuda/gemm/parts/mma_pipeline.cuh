// The code around the main loop of mma_sync and dmma: the arguments of their kernels, and how persistent
// blocks share tiles and hand partial sums to each other.
#pragma once

#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/line_tile.cuh"
#include "cuda/gemm/parts/schedules/stream_k.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"
#include "cuda/gemm/parts/stores/warp_slab.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The arguments of the kernels.
template <class T>
struct TileArguments {
  Gemm<T> gemm;
  RowsOperands<T> operands;
  ResultVectors vectors;
  int blocks;
  Schedule<Accumulator<T>> schedule;
  Epilogue epilogue;  // used by kernels that fuse it
};

// Block tile, warp tile, stages of 128 bytes of k, blocks on a multiprocessor.
template <int BM_, int BN_, int WM_, int WN_, int STAGES_, int BLOCKS_>
struct TileConfig {
  static constexpr int BM = BM_, BN = BN_, WM = WM_, WN = WN_, kStages = STAGES_, kBlocks = BLOCKS_;
  static constexpr int kWarpsM = BM / WM, kWarps = kWarpsM * (BN / WN), kThreads = 32 * kWarps;
};

// A warp's slab in shared memory that a ring of RING bytes used before. It has all WM rows of the warp's tile
// if the slabs of all warps fit. Otherwise it has half of them, and the halves are stored one after the
// other.
template <class Acc, class C, int RING>
using SlabInRing =
    WarpSlab<Acc, sizeof(WarpSlab<Acc, C::WM, C::WN>) * C::kWarps <= RING ? C::WM : C::WM / 2, C::WN>;

// The arguments for tiles (bm, bn) in stages of bk, which are divided among `blocks` blocks as `sharing`
// says. One launch copies operands and clears flags, if there are any.
template <OperandLayout layout, class T>
TileArguments<T> tile_arguments(const Gemm<T>& g, int batch, int bm, int bn, int bk, int blocks,
                                const Sharing& sharing, Context& context) {
  TileArguments<T> t{.gemm = g, .vectors = result_vectors(g.result), .blocks = blocks};
  t.schedule.tiles_m = int(ceil_div(g.m, bm)), t.schedule.tiles_n = int(ceil_div(g.n, bn));
  const int64_t tiles = int64_t{tile_grid(g.m, g.n, bm, bn, batch).grid.x} * batch;
  const auto flags = share(t.schedule, tiles, int(ceil_div(g.k, bk)), blocks, sharing, bm * bn, 1, context);
  t.operands = rows_operands<layout>(g, batch, context, flags);
  return t;
}

// Every tile of C is computed.
struct AllTiles {
  __device__ __forceinline__ bool skips(int, int) const { return false; }
};

// Stores a warp's sums through its slab of shared memory, which has all of its rows or half of them.
// finish(slab, first) may change the sums of the rows from `first` on before they are stored at (row, column)
// of C.
template <class C, class Slab, class Sum, class T, class Finish>
__device__ __forceinline__ void store_through(Slab& slab, const Sum& sum, const Gemm<T>& g,
                                              ResultVectors vectors, int64_t row, int64_t column,
                                              Finish&& finish) {
  FASTGEMM_UNROLL
  for (int first = 0; first < C::WM; first += slab.kRows) {
    if (first > 0) __syncwarp();  // the rows before have been stored from the slab
    slab.put(sum, first / 16);
    __syncwarp();
    finish(slab, first);
    slab.store(g, vectors, row + first, column);
  }
}

// Computes a block's parts of C by mma, with the shapes and warp products of K. If selection.skips(row,
// column) is true for the first row and column of a tile, the tile is not computed.
template <class K, class T, class Selection = AllTiles>
__device__ __forceinline__ void multiply_parts(const TileArguments<T>& g, const Selection& selection = {}) {
  using C = typename K::Config;
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  const int index = warp_index(), row = index % C::kWarpsM * C::WM, column = index / C::kWarpsM * C::WN;
  Part part;
  for (int i = 0; part_of(g.schedule.work, i, part); ++i) {
    const TilePlace<8> place(part.tile, g.schedule.tiles_m, g.schedule.tiles_n);
    const int row0 = place.row * C::BM, column0 = place.column * C::BN;
    if (selection.skips(row0, column0)) continue;
    using CopyA = TileCopy<typename K::TileA, T, C::kThreads>;
    using CopyB = TileCopy<typename K::TileB, T, C::kThreads>;
    const int steps = part.end - part.first;
    // steps + 1: the loop also loads the stage after the last one, but does not multiply it.
    StageCopy copies(CopyA(g.operands.a, place.batch, row0, part.first),
                     CopyB(g.operands.b, place.batch, column0, part.first), steps + 1);
    typename K::Warp warp(row, column);
    multiply_stages<C::kStages, K::kStageBytes>(shared->ring[0], steps, copies, warp);
    using Sums = PartialSums<C::kThreads, 1>;
    auto& sum = reinterpret_cast<Accumulator<T>(&)[C::WM * C::WN / 32]>(warp.sum);
    if (part.end != g.schedule.work.steps) {
      hand_over<Sums>(g.schedule, sum, C::BM * C::BN, int(blockIdx.x), index == 0, [] { __syncthreads(); });
      continue;
    }
    if (part.first != 0) collect<Sums>(g.schedule, sum, part, C::BM * C::BN);
    const auto finish = [&](auto& slab, int first) {
      if constexpr (kFuses<C>)
        finish_slab(slab, g.gemm, g.epilogue, int64_t(row0) + row + first, int64_t(column0) + column);
    };
    store_through<C>(shared->slabs[index], warp.sum, g.gemm.at_batch(place.batch), g.vectors,
                     int64_t(row0) + row, int64_t(column0) + column, finish);
    __syncthreads();  // the ring may overwrite the slabs
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
