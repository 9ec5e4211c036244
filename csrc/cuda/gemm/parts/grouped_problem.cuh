// Products whose m or k is cut into groups of uneven size (core/groups.h), for kernels that read operands in
// place. Contract: block_work<BM, BN>(g, tiles_n) is the product and the tile that a block computes, for a
// plain batch as for groups. The kernel reads the ends of the groups, and the host does not know them. So the
// grid has enough blocks for any ends. Blocks without a tile get a product of no rows.
//
//   tiles of 4 rows        | group 0: 5 rows | group 1: none | group 2: 3 | beyond the last end: 2 |
//   blocks along the rows    0      1                          2            3       (4 and 5: no tile)
//
// Rows beyond the last end are one more group, whose k is 0.
#pragma once

#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Where a tile of a group's rows lies. Without such a tile the range is empty.
struct GroupTile {
  int group;
  GroupRange rows;
  int tile;  // the number of the tile in its group
};

// Group `index`. Index `count` stands for the rows beyond the last end.
__device__ __forceinline__ GroupRange group_or_rest(const int32_t* ends, int index, int count, int size) {
  if (index < count) return GroupRange::of(ends, index, size);
  const int last = count > 0 ? min(max(ends[count - 1], 0), size) : 0;
  return {last, index == count ? size : last};
}

// The sum of `value` in this lane and the lanes before it. All lanes of the warp call it.
__device__ __forceinline__ int sum_to_here(int value) {
  const int lane = int(threadIdx.x) % 32;
  FASTGEMM_UNROLL
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// Finds tile `slot` of all tiles of ROWS rows. The lanes of a warp look at 32 groups at a time; all lanes
// call it and get the same answer.
template <int ROWS>
__device__ __forceinline__ GroupTile find_tile(const int32_t* ends, int count, int size, int slot) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = int(threadIdx.x) % 32;
  for (int first = 0, before = 0; first <= count; first += 32) {
    const GroupRange rows = group_or_rest(ends, first + lane, count, size);
    const int tiles = (rows.size() + ROWS - 1) / ROWS, end = before + sum_to_here(tiles);
    const unsigned beyond = __ballot_sync(kAll, end > slot);
    if (beyond != 0) {
      const int found = __ffs(int(beyond)) - 1;
      return {first + found,
              {__shfl_sync(kAll, rows.begin, found), __shfl_sync(kAll, rows.end, found)},
              slot - __shfl_sync(kAll, end - tiles, found)};
    }
    before = __shfl_sync(kAll, end, 31);
  }
  return {count, {size, size}, 0};
}

template <class T>
struct GroupedGemm : Gemm<T> {
  GroupedBy by;
  int groups;
  const int32_t* ends;
  int first = 0;  // the group of blockIdx.z = 0, with groups of k

  // The product of one group. Without branches around its addresses, nvcc knows that they are global ones.
  __device__ __forceinline__ Gemm<T> at_group(int index, const GroupRange& range) const {
    const bool by_k = by == GroupedBy::k;
    const int64_t row = by_k ? 0 : range.begin, k = by_k ? range.begin : 0;
    Gemm<T> g = this->at_batch(index);
    (by_k ? g.k : g.m) = range.size();
    g.a.data += row * g.a.row_stride + k * g.a.col_stride, g.b.data += k * g.b.row_stride;
    const int bytes = g.result.out_bytes();
    g.result.out = static_cast<char*>(g.result.out) + row * g.result.row_stride * bytes;
    g.result.c = static_cast<const char*>(g.result.c) + row * g.result.c_row_stride * bytes;
    if (!by_k && index == groups) g.k = 0, g.result.beta = 0;  // beyond the last end
    return g;
  }
};

template <class G>
inline constexpr bool kIsGrouped = std::is_same_v<G, GroupedGemm<typename G::Element>>;

// The grid for tiles (bm, bn).
template <class T>
TileGrid tile_grid(const Gemm<T>& g, int bm, int bn, int batch) {
  return tile_grid(g.m, g.n, bm, bn, batch);
}
template <class T>
TileGrid tile_grid(const GroupedGemm<T>& g, int bm, int bn, int groups) {
  if (g.by == GroupedBy::k) return tile_grid(g.m, g.n, bm, bn, groups);
  return tile_grid(g.m + int64_t{bm} * (groups + 1), g.n, bm, bn, 1);
}

// Whether blocks may share the k of a tile, whose sums are added by a second launch.
template <class T>
constexpr bool may_split(const Gemm<T>&) {
  return true;
}
template <class T>
constexpr bool may_split(const GroupedGemm<T>&) {
  return false;
}

// The group of a block, and where it begins in the rows or in k of all groups.
struct GroupWork {
  int group, begin;
};

template <class T>
struct BlockWork {
  Gemm<T> gemm;
  BlockTile tile;
};
template <class T>
struct GroupedBlockWork : BlockWork<T> {
  GroupWork group;
};

template <int BM, int BN, class T>
__device__ __forceinline__ BlockWork<T> block_work(const Gemm<T>& g, unsigned tiles_n) {
  return {g.at_batch(blockIdx.z), block_tile<BM, BN>(tiles_n)};
}
template <int BM, int BN, class T>
__device__ __forceinline__ GroupedBlockWork<T> grouped_block_work(const GroupedGemm<T>& g, unsigned tiles_n) {
  BlockTile tile = block_tile<BM, BN>(tiles_n);
  GroupTile found{g.first + int(blockIdx.z), {0, 0}, 0};
  if (g.by == GroupedBy::k) {
    found.rows = GroupRange::of(g.ends, found.group, int(g.k));
  } else {
    found = find_tile<BM>(g.ends, g.groups, int(g.m), int(blockIdx.x / tiles_n));
    tile.row = int64_t{found.tile} * BM;
  }
  return {{g.at_group(found.group, found.rows), tile}, {found.group, found.rows.begin}};
}
template <int BM, int BN, class T>
__device__ __forceinline__ BlockWork<T> block_work(const GroupedGemm<T>& g, unsigned tiles_n) {
  return grouped_block_work<BM, BN>(g, tiles_n);
}

template <class T>
GroupedGemm<T> grouped_gemm(const GemmProblem& p) {
  return {gemm_of<T>(p), p.groups.by, int(p.batch), p.groups.ends};
}

// Calls launch(g, batch) with a Gemm<T>, as run_every_type() does, or with a GroupedGemm<T> and the number of
// groups.
template <class Launch>
void run_every_batch(const GemmProblem& p, Context& context, Launch&& launch) {
  if (!p.groups.are_given()) return run_every_type(p, context, launch);
  if (p.m <= 0 || p.n <= 0) return;
  constexpr int kMostBlocksZ = 65535;
  const bool by_k = p.groups.by == GroupedBy::k;
  with_any_element(p.type, [&]<class T>() {
    GroupedGemm<T> g = grouped_gemm<T>(p);
    if (!by_k) return launch(g, g.groups);
    for (; g.first < g.groups; g.first += kMostBlocksZ) launch(g, std::min(g.groups - g.first, kMostBlocksZ));
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
