// What surrounds the main loop of mma_sync and dmma: the arguments of their kernels, and how persistent
// blocks share tiles and hand partial sums to each other.
#pragma once

#include "cuda/gemm/launchers.h"
#include "cuda/gemm/parts/line_tile.cuh"
#include "cuda/gemm/parts/stream_k.cuh"
#include "cuda/gemm/parts/tile_order.cuh"
#include "cuda/gemm/parts/warp_slab.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// What the kernels are given.
template <class T>
struct TileArguments {
  Gemm<T> gemm;
  RowsOperands<T> operands;
  ResultVectors vectors;
  int tiles_m, tiles_n, blocks;
  StreamK work;              // the tiles of all matrices, shared among persistent blocks
  Accumulator<T>* partials;  // a block's sums of the tile that it could not finish
  uint32_t* flags;           // 1: they are there
};

// Block tile, warp tile, stages of 128 bytes of k, blocks on a multiprocessor.
template <int BM_, int BN_, int WM_, int WN_, int STAGES_, int BLOCKS_>
struct TileConfig {
  static constexpr int BM = BM_, BN = BN_, WM = WM_, WN = WN_, kStages = STAGES_, kBlocks = BLOCKS_;
  static constexpr int kWarpsM = BM / WM, kWarps = kWarpsM * (BN / WN), kThreads = 32 * kWarps;
};

static __global__ void clear_flags_kernel(uint32_t* flags, int count) {
  for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) flags[i] = 0;
}

// Arguments for tiles (bm, bn) and stages of bk, where at_a_time blocks run at a time.
template <Takes takes, class T>
TileArguments<T> tile_arguments(const Gemm<T>& g, int batch, int bm, int bn, int bk, int at_a_time,
                                Context& context) {
  TileArguments<T> t{.gemm = g,
                     .operands = rows_operands<takes>(g, batch, context),
                     .vectors = result_vectors(g.result),
                     .tiles_m = int(ceil_div(g.m, bm)),
                     .tiles_n = int(ceil_div(g.n, bn))};
  const int64_t tiles = int64_t{tile_grid(g.m, g.n, bm, bn, batch).grid.x} * batch;
  t.blocks = int(std::min<int64_t>(tiles, at_a_time));
  t.work = plan_stream_k(tiles, int(ceil_div(g.k, bk)), t.blocks);
  if (t.work.whole_tiles == tiles) return t;
  t.partials = static_cast<Accumulator<T>*>(
      context.allocate(sizeof(Accumulator<T>) * size_t(t.blocks) * size_t(bm) * size_t(bn)));
  t.flags = static_cast<uint32_t*>(context.allocate(sizeof(uint32_t) * size_t(t.blocks)));
  launch<clear_flags_kernel>("clear_flags", {dim3(1), dim3(256)}, context)(t.flags, t.blocks);
  return t;
}

// Sums of a tile that another block finishes, as [register][thread]: every access is a full line.
template <class K, class T, class Sum>
__device__ __forceinline__ void hand_over(const TileArguments<T>& g, const Sum& sum) {
  using C = typename K::Config;
  Accumulator<T>* to = g.partials + int64_t(blockIdx.x) * C::BM * C::BN + threadIdx.x;
  FASTGEMM_UNROLL
  for (int i = 0; i < C::WM / 16; ++i) {
    FASTGEMM_UNROLL
    for (int j = 0; j < C::WN / 8; ++j) {
      FASTGEMM_UNROLL
      for (int r = 0; r < 4; ++r) to[((i * C::WN / 8 + j) * 4 + r) * C::kThreads] = sum[i][j][r];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) store_release(&g.flags[blockIdx.x], 1);
}
template <class K, class T, class Sum>
__device__ __forceinline__ void collect(const TileArguments<T>& g, Sum& sum, const Part& part) {
  using C = typename K::Config;
  const int64_t tile_begin = int64_t(part.tile - g.work.whole_tiles) * g.work.steps;
  int block = int(blockIdx.x);
  do {
    --block;
    while (__any_sync(0xffffffffu, load_acquire(&g.flags[block]) == 0)) spin_wait();
    const Accumulator<T>* from = g.partials + int64_t(block) * C::BM * C::BN + threadIdx.x;
    FASTGEMM_UNROLL
    for (int i = 0; i < C::WM / 16; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < C::WN / 8; ++j) {
        FASTGEMM_UNROLL
        for (int r = 0; r < 4; ++r) sum[i][j][r] += from[((i * C::WN / 8 + j) * 4 + r) * C::kThreads];
      }
    }
  } while (g.work.begin(block) > tile_begin);
}

// Part i of a block, as Parts counts them, without state that would cost registers in the main loop; false
// after the last one.
__device__ __forceinline__ bool part_of(const StreamK& plan, int i, Part& part) {
  const int block = int(blockIdx.x), blocks = int(gridDim.x), whole = block + i * blocks;
  if (whole < plan.whole_tiles) {
    part = {whole, 0, plan.steps};
    return true;
  }
  const int64_t begin = plan.begin(block), end = plan.begin(block + 1);
  if (begin == end) return false;  // no share
  const int last = int((end - 1) / plan.steps), tile = last - (i - plan.whole_tiles / blocks);
  if (tile < int(begin / plan.steps)) return false;
  part = {plan.whole_tiles + tile, int(max(begin - int64_t(tile) * plan.steps, int64_t(0))),
          tile == last ? int((end - 1) % plan.steps) + 1 : plan.steps};
  return true;
}

// A block's parts of C by mma: shapes, warps and their products as K has them.
template <class K, class T>
__device__ __forceinline__ void multiply_parts(const TileArguments<T>& g) {
  using C = typename K::Config;
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  const int index = warp_index(), row = index % C::kWarpsM * C::WM, column = index / C::kWarpsM * C::WN;
  Part part;
  for (int i = 0; part_of(g.work, i, part); ++i) {
    const TilePlace<8> place(part.tile, g.tiles_m, g.tiles_n);
    const int row0 = place.row * C::BM, column0 = place.column * C::BN;
    using CopyA = TileCopy<typename K::TileA, T, C::kThreads>;
    using CopyB = TileCopy<typename K::TileB, T, C::kThreads>;
    const int steps = part.end - part.first;
    // One stage more than is multiplied, for it is read.
    StageCopy copies(CopyA(g.operands.a, place.batch, row0, part.first),
                     CopyB(g.operands.b, place.batch, column0, part.first), steps + 1);
    typename K::Warp warp(row, column);
    multiply_stages<C::kStages, K::kStageBytes>(shared->ring[0], steps, copies, warp);
    if (part.end != g.work.steps) {
      hand_over<K>(g, warp.sum);
      continue;
    }
    if (part.first != 0) collect<K>(g, warp.sum, part);
    auto& slab = shared->slabs[index];
    slab.put(warp.sum);
    __syncwarp();
    slab.store(g.gemm.at_batch(place.batch), g.vectors, int64_t(row0) + row, int64_t(column0) + column);
    __syncthreads();  // the slabs make room for the ring
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
