// The common parts of `skinny` and its form for other GPUs: the tiles, the arguments, and the store of the
// sums. Contract: store_tile() stores a finished tile, hand_over() the partial sums of a shared one, and
// gemm_skinny_add_kernel adds those in the order of k.
//
// If that keeps enough multiprocessors busy until the end, blocks compute whole tiles, otherwise equal shares
// of all steps (parts/schedules/shares.cuh).
#pragma once

#include "cuda/gemm/parts/schedules/shares.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"
#include "cuda/gemm/parts/stores/slab.cuh"
#include "cuda/gemm/parts/wgmma_kernel.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {

// Block tile (kM, kN): rows of the large operand, columns of the skinny one.
template <int M>
struct SkinnyShape {
  static constexpr int kM = M, kN = 64;
  static constexpr int kConsumers = kM / 64, kConsumerThreads = 128 * kConsumers;  // warpgroups of 64 rows
  static constexpr int kUnitThreads = 256;  // load operands that the TMA cannot read
  static constexpr int kStageBytes = (kM + kN) * 128;
  static constexpr bool kShares = kM != 64;  // blocks may share tiles; a second kernel adds their sums
  // 80 or 64 KB of the large operand are in flight: less was slower, and so was more.
  static constexpr int kStages = kShares ? 5 : 8;

  struct Shared : WgmmaShared<kStages, kStageBytes, kConsumerThreads / 32> {
    Slab<kN> slab[kConsumerThreads / 32];
  };
  static_assert(sizeof(Shared) <= 227 << 10);

  // Which operands are compiled for these tiles. Boxes of int8 with m or n along rows are 128 wide, too wide
  // for narrow tiles. Other combinations are not compiled because gemm_tiles() never picks narrow tiles for
  // them.
  static constexpr bool takes(Major large, Major skinny, int bytes) {
    return kM == 128 || plans::takes_narrow_skinny(large == Major::k, skinny == Major::k, bytes);
  }
};

template <class T>
struct SkinnyArguments {
  Gemm<T> gemm;
  BoxOperand<T> large, skinny;
  bool large_is_b;
  bool by_units;         // the TMA cannot read the operands
  int skinny_rows;       // rows of the skinny operand's boxes, where k runs along rows
  int tiles_m, tiles_n;  // along the large and the skinny operand
  Shares shares;
  Accumulator<T>* partials;  // null: no tile is shared
  Epilogue epilogue;         // used by kernels that fuse it
};

// The place of a tile. Consecutive tiles go along the skinny operand first, because these read the same rows
// of the large operand.
template <class S>
struct SkinnyPlace {
  int batch, row, column;

  template <class T>
  __device__ __forceinline__ SkinnyPlace(int tile, const SkinnyArguments<T>& g) {
    const int line = tile / g.tiles_n;
    batch = line / g.tiles_m;
    row = (line - batch * g.tiles_m) * S::kM;
    column = (tile - line * g.tiles_n) * S::kN;
  }
};

// Stores `columns` columns of a warp's slab that begins at (row, column) of the product of the large and the
// skinny operand.
template <class S, class T>
__device__ __forceinline__ void store_slab(const SkinnyArguments<T>& g, const uint32_t* slab, int batch,
                                           int row, int column, int columns) {
  store_slab<S>(g.gemm.at_batch(batch).result, g.epilogue, g.large_is_b, slab, row, column,
                min(kSlabRows, int(g.large.side) - row), columns);
}

// Stores a finished tile. A lane has R sums.
template <class Rows, class S, class T, int R>
__device__ __forceinline__ void store_tile(const SkinnyArguments<T>& g, uint32_t* slab,
                                           const Accumulator<T> (&sum)[R], const SkinnyPlace<S>& place,
                                           int warp) {
  const int columns = min(2 * R, int(g.skinny.side) - place.column);
  FASTGEMM_UNROLL
  for (int i = 0; i < R; i += 4)
    if (2 * i < columns) put_in_slab<Rows>(slab, 2 * i, {sum[i], sum[i + 1], sum[i + 2], sum[i + 3]});
  __syncwarp();
  store_slab<S>(g, slab, place.batch, place.row + kSlabRows * warp, place.column, columns);
  __syncwarp();
}

// Where a block's partial sums lie in the workspace: [block][which of two tiles][warpgroup][8
// columns][thread][4].
template <class S, class T>
__device__ __forceinline__ Accumulator<T>* share_of(const SkinnyArguments<T>& g, int block, bool begins_tile,
                                                    int warpgroup, int group) {
  const int64_t index =
      ((int64_t{block} * 2 + begins_tile) * S::kConsumers + warpgroup) * (S::kN / 8) + group;
  return g.partials + index * 512 + threadIdx.x % 128 * 4;
}

template <class S, class T, int R>
__device__ __forceinline__ void hand_over(const SkinnyArguments<T>& g, const Accumulator<T> (&sum)[R],
                                          const Part& part, const SkinnyPlace<S>& place) {
  FASTGEMM_UNROLL
  for (int i = 0; i < R; i += 4)
    if (place.column + 2 * i < g.skinny.side)
      store_vector(share_of<S>(g, int(blockIdx.x), part.first == 0, int(threadIdx.x) / 128, i / 4),
                   Vector16<Accumulator<T>>{{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]}});
}

// The fix-up kernel: adds the partial sums of shared tiles. A block adds 64 rows by 8 columns.
template <class S, class Rows, class T>
__global__ void __launch_bounds__(128) gemm_skinny_add_kernel(const __grid_constant__ SkinnyArguments<T> g) {
  using Acc = Accumulator<T>;
  FASTGEMM_SHARED Slab<8> slab[4];
  const int tile = int(blockIdx.x) / S::kConsumers, warpgroup = int(blockIdx.x) % S::kConsumers;
  const int group = int(blockIdx.y), warp = int(threadIdx.x) / 32, begin = tile * g.shares.steps;
  launch_dependents();
  const int first = g.shares.block_of(begin), last = g.shares.block_of(begin + g.shares.steps - 1);
  const SkinnyPlace<S> place(tile, g);
  const int row = place.row + 64 * warpgroup + kSlabRows * warp, column = place.column + 8 * group;
  grid_dependency_wait();
  if (first == last || row >= g.large.side || column >= g.skinny.side) return;
  // The block `first` begins the tile. In every later block's share this tile comes first.
  const Acc* from = share_of<S>(g, first, true, warpgroup, group);
  const Acc* next = share_of<S>(g, first + 1, false, warpgroup, group);
  constexpr int kAtOnce = 8, kNextBlock = 2 * S::kM * S::kN;
  Vector16<Acc> sum{};
  add_vectors<kAtOnce>(sum, last - first + 1, 1, [&] {
    const Acc* const here = from;
    from = next, next += kNextBlock;
    return here;
  });
  put_in_slab<Rows>(slab[warp].word, 0, sum.v);
  __syncwarp();
  store_slab<S>(g, slab[warp].word, place.batch, row, column, min(8, int(g.skinny.side) - column));
}

}  // namespace fastgemm::FASTGEMM_TARGET
