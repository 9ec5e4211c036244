// How `skinny` shares its work among blocks, and its epilogue. Contract: Shares::each_part() gives the
// parts of a block; store_tile() stores a finished tile, hand_over() the partial sums of a shared one, and
// gemm_skinny_add_kernel adds those in the order of k.
//
//   all stages of all tiles   | tile 0      | tile 1      | tile 2      |
//   block                     | 0       | 1       | 2       | 3       |     equal shares
//   in the workspace            0         1 1       2 2       3             a block shares at most two tiles
//
// Blocks compute whole tiles where enough multiprocessors then read until the end. Otherwise the stages of
// all tiles, one tile after another, are cut into equal shares, one for each block. Where several blocks
// share a tile, their partial sums go to the workspace, and a second kernel adds them.
//
// With cold caches, code costs as much time as data: fetching an unrolled store for each of a lane's 32 sums
// takes microseconds. So sums go through shared memory, and a loop stores them.
#pragma once

#include "cuda/gemm/parts/fused_epilogue.cuh"
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/split_k.cuh"
#include "cuda/gemm/parts/wgmma_operand.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kSlabRows = 16;

// A warp's sums (16, COLUMNS) as 32-bit words, staged in shared memory column by column. The words of two
// columns are permuted so that three access patterns have no bank conflicts: writes of fragments (4 x 8 words
// of four columns), and the lanes' reads (2 x 16 or 8 x 4 words).
template <int COLUMNS>
struct Slab {
  uint32_t word[COLUMNS * kSlabRows];

  __device__ __forceinline__ static int index(int row, int column) {
    return column / 2 * 32 + ((column % 2 * 16 + row) ^ column / 2 % 4 * 8);
  }
};

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

  struct Shared {
    unsigned char stage[kStages][kStageBytes];  // (kM, 128 bytes) of the large operand, (kN, 128 bytes)
    Slab<kN> slab[kConsumerThreads / 32];
    RingBarriers<kStages> ring;
  };
  static_assert(sizeof(Shared) <= 227 << 10);

  // Which operands are compiled for these tiles. Boxes of int8 with m or n along rows are 128 wide, too wide
  // for narrow tiles. Other combinations are not compiled because gemm_tiles() never picks narrow tiles for
  // them.
  static constexpr bool takes(Major large, Major skinny, int bytes) {
    return kM == 128 || plans::takes_narrow_skinny(large == Major::k, skinny == Major::k, bytes);
  }
};

// Stages [first, end) of a tile.
struct TilePart {
  int tile, first, end;
};

// A tile has `steps` stages. A block has `share` stages, and the first `longer` blocks have `unit` more: 1,
// or all stages of a tile where no tile is shared. In the latter case neighbouring blocks have neighbouring
// tiles, which lie next to each other in memory or read the same rows of the large operand.
struct Shares {
  int steps, share, longer, unit;

  __device__ __forceinline__ int begin(int block) const {
    return unit > 1 ? block * steps : block * share + min(block, longer);
  }
  __device__ __forceinline__ int count(int block) const { return share + (block < longer ? unit : 0); }
  // The distance from a tile of a block to its next one.
  __device__ __forceinline__ int apart() const { return unit > 1 ? int(gridDim.x) : 1; }
  // The block that computes this stage, where unit is 1.
  __device__ __forceinline__ int block_of(int stage) const {
    const int in_longer = longer * (share + 1);
    return stage < in_longer ? stage / (share + 1) : longer + (stage - in_longer) / share;
  }
  // Calls body(part) for the parts of a block.
  template <class Body>
  __device__ __forceinline__ void each_part(int block, Body&& body) const {
    const int begins = begin(block);
    int left = count(block), first = begins % steps, tile = begins / steps;
    while (left > 0) {
      const int end = min(steps, first + left);
      body(TilePart{tile, first, end});
      left -= end - first, first = 0, tile += apart();
    }
  }
};

template <class T>
struct SkinnyArguments {
  Gemm<T> gemm;
  BoxOperand<T> large, skinny;
  bool large_is_b;
  bool by_units;                  // the TMA cannot read the operands
  int skinny_rows;                // rows of the skinny operand's boxes, where k runs along rows
  int batch_large, batch_skinny;  // 0 if the batch shares the operand
  int tiles_m, tiles_n;           // along the large and the skinny operand
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

// Writes a lane's four sums of the 8 columns from `column` on to the warp's slab.
template <class Rows, class Acc>
__device__ __forceinline__ void put_in_slab(uint32_t* slab, int column, const Acc (&sum)[4]) {
  const int lane = int(threadIdx.x) % 32;
  FASTGEMM_UNROLL
  for (int i = 0; i < 4; ++i) {
    uint32_t bits;
    if constexpr (std::is_same_v<Acc, float>)
      bits = __float_as_uint(sum[i]);
    else
      bits = sum[i];
    slab[Slab<8>::index(Rows::row(lane / 4, i / 2), column + lane % 4 * 2 + i % 2)] = bits;
  }
}

// Stores the first `columns` columns of a warp's slab to C. The slab begins at (row, column) of the product
// of the large and the skinny operand. Neighbouring lanes store neighbouring elements of C's rows.
template <class S, class Out, class T>
__device__ __forceinline__ void store_slab_as(const SkinnyArguments<T>& g, const uint32_t* slab, int batch,
                                              int row, int column, int columns) {
  using Acc = Accumulator<T>;
  const Result<T> result = g.gemm.at_batch(batch).result;
  const int rows = min(kSlabRows, int(g.large.side) - row);
  const int log = g.large_is_b ? 4 : columns <= 8 ? 3 : columns <= 16 ? 4 : 6, along = 1 << log;
  const int across = g.large_is_b ? columns : kSlabRows;
  constexpr int kAtOnce = 2;  // elements of a lane at a time, so that loads of c overlap
  FASTGEMM_NO_UNROLL
  for (int first = int(threadIdx.x) % 32; first < along * across; first += 32 * kAtOnce) {
    Acc value[kAtOnce];
    const auto each = [&](auto&& body) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + 32 * j, fast = i & (along - 1), slow = i >> log;
        const int r = g.large_is_b ? fast : slow, c = g.large_is_b ? slow : fast;
        if (r < rows && c < columns)
          body(j, r, c, g.large_is_b ? column + c : row + r, g.large_is_b ? row + r : column + c);
      }
    };
    each([&](int j, int r, int c, int64_t to_row, int64_t to_column) {
      const uint32_t bits = slab[Slab<8>::index(r, c)];
      Acc sum;
      if constexpr (std::is_same_v<Acc, float>)
        sum = __uint_as_float(bits);
      else
        sum = bits;
      if constexpr (kFuses<S>)
        value[j] = finished<Out>(g.epilogue, result, to_row, to_column, sum);
      else
        value[j] = result.template blend<Out>(to_row, to_column, sum);
    });
    each([&](int j, int, int, int64_t to_row, int64_t to_column) {
      result.template put<Out>(to_row, to_column, value[j]);
    });
  }
}
template <class S, class T>
__device__ __forceinline__ void store_slab(const SkinnyArguments<T>& g, const uint32_t* slab, int batch,
                                           int row, int column, int columns) {
  if constexpr (Result<T>::kMayBeWide) {
    if (g.gemm.result.wide) return store_slab_as<S, float>(g, slab, batch, row, column, columns);
  }
  store_slab_as<S, typename Result<T>::Stored>(g, slab, batch, row, column, columns);
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
// columns][thread][4]. A block shares at most two tiles: the one whose middle its share begins in, and the
// one that it begins but does not finish.
template <class S, class T>
__device__ __forceinline__ Accumulator<T>* share_of(const SkinnyArguments<T>& g, int block, bool begins_tile,
                                                    int warpgroup, int group) {
  const int64_t index =
      ((int64_t{block} * 2 + begins_tile) * S::kConsumers + warpgroup) * (S::kN / 8) + group;
  return g.partials + index * 512 + threadIdx.x % 128 * 4;
}

template <class S, class T, int R>
__device__ __forceinline__ void hand_over(const SkinnyArguments<T>& g, const Accumulator<T> (&sum)[R],
                                          const TilePart& part, const SkinnyPlace<S>& place) {
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
