// Level 6 since sm_80 for products of groups of uneven size: mma_sync's main loop, with a tile that each
// block finds from the ends of the groups (parts/grouped_problem.cuh). What changes from mma_sync:
//   - a block computes one tile, (128 rows of a group, 256 columns), or none if there are fewer tiles than
//     blocks;
//   - the operands of a block are those of its group. Copies read zeros beyond the group, so that rows and
//     values of k of the next group, which may be NaN, are not multiplied.
#include "cuda/gemm/parts/grouped_problem.cuh"
#include "cuda/gemm/parts/large_mma.cuh"
#include "cuda/gemm/parts/sources/copied_operand.cuh"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <class T>
struct GroupedArguments {
  GroupedGemm<T> gemm;
  RowsOperands<T> operands;
  ResultVectors vectors;
  unsigned tiles_n;
};

// The operands of one group. `g` is its product.
template <class T>
__device__ __forceinline__ RowsOperands<T> operands_of(const GroupedArguments<T>& s, const Gemm<T>& g,
                                                       const GroupWork& work) {
  RowsOperands<T> o = s.operands;
  o.a.k = o.b.k = int(g.k);
  if (s.gemm.by == GroupedBy::k) {
    if (g.k == 0) return o;  // nothing is read
    o.a.data += work.begin * (o.a.along_k ? 1 : o.a.row_stride);
    o.b.data += work.begin * (o.b.along_k ? 1 : o.b.row_stride);
  } else {
    o.a.data += work.begin * (o.a.along_k ? o.a.row_stride : 1), o.a.side = int(g.m);
    o.b.data += work.group * o.b.batch_stride;
  }
  return o;
}

template <class C, class T, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_grouped_mma_kernel(const __grid_constant__ GroupedArguments<T> s) {
  if constexpr (kMayHaveStages<C::kStages, kLargeMmaStageBytes>) {
    using K = LargeMmaKernel<C, T, a_along_k, b_along_k>;
    FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
    const GroupedBlockWork<T> work = grouped_block_work<C::BM, C::BN>(s.gemm, s.tiles_n);
    const Gemm<T>& g = work.gemm;
    const BlockTile& tile = work.tile;
    if (tile.row >= g.m) return;
    const RowsOperands<T> operands = operands_of(s, g, work.group);
    const int index = warp_index(), row = index % C::kWarpsM * C::WM, column = index / C::kWarpsM * C::WN;
    const int steps = (int(g.k) + K::TileA::kK - 1) / K::TileA::kK;
    using CopyA = TileCopy<typename K::TileA, T, C::kThreads>;
    using CopyB = TileCopy<typename K::TileB, T, C::kThreads>;
    StageCopy copies(CopyA(operands.a, 0, int(tile.row)), CopyB(operands.b, 0, int(tile.col)), steps + 1);
    typename K::Warp warp(row, column);
    multiply_stages<C::kStages, kLargeMmaStageBytes>(shared->ring[0], steps, copies, warp);
    store_through<C>(shared->slabs[index], warp.sum, g, s.vectors, tile.row + row, tile.col + column,
                     [](auto&, int) {});
  }
}

// Copies an operand whose groups may begin at any address, because the kernel's copies read 16 bytes at a
// time. In the copy, the rows in memory are those of the grouped dimension, and begin at multiples of 16
// bytes.
template <class T>
GroupedGemm<T> with_aligned_groups(GroupedGemm<T> g, Context& context) {
  const auto copied = [&](const T* data, int64_t rows, int64_t columns, int64_t row_stride,
                          int64_t column_stride) {
    return pack_rows(data, rows, columns, row_stride, column_stride, int64_t{0}, 1, context);
  };
  const auto lies_so = [](const T* data, int64_t row_stride, int64_t column_stride) {
    return column_stride == 1 && row_stride != 1 && rows_aligned(PackedRows<T>{data, row_stride, 0});
  };
  if (g.by == GroupedBy::m && g.a.col_stride != 1) {
    const auto copy = copied(g.a.data, g.m, g.k, g.a.row_stride, g.a.col_stride);
    g.a = {copy.data, copy.row_stride, 1, 0};
  }
  if (g.by == GroupedBy::k && !lies_so(g.a.data, g.a.col_stride, g.a.row_stride)) {
    const auto copy = copied(g.a.data, g.k, g.m, g.a.col_stride, g.a.row_stride);
    g.a = {copy.data, 1, copy.row_stride, 0};
  }
  if (g.by == GroupedBy::k && !lies_so(g.b.data, g.b.row_stride, g.b.col_stride)) {
    const auto copy = copied(g.b.data, g.k, g.n, g.b.row_stride, g.b.col_stride);
    g.b = {copy.data, copy.row_stride, 1, 0};
  }
  return g;
}

template <class C, class T>
void launch_grouped_mma(const GroupedGemm<T>& given, int groups, Context& context) {
  const GroupedGemm<T> g = with_aligned_groups(given, context);
  constexpr OperandLayout kLayout = sizeof(T) == 2 ? OperandLayout::any : OperandLayout::along_k;
  const TileGrid tiles = tile_grid(g, C::BM, C::BN, groups);
  const GroupedArguments<T> arguments{g,
                                      rows_operands<kLayout>(static_cast<const Gemm<T>&>(g), groups, context),
                                      result_vectors(g.result), tiles.tiles_n};
  arguments.operands.template with_directions<kLayout>([&]<bool a_along_k, bool b_along_k>() {
    using K = LargeMmaKernel<C, T, a_along_k, b_along_k>;
    launch<gemm_grouped_mma_kernel<C, T, a_along_k, b_along_k>>(
        "grouped_mma", {tiles.grid, dim3(C::kThreads), sizeof(typename K::Shared)}, context)(arguments);
  });
}

}  // namespace

void gemm_grouped_mma(const GemmProblem& p, Context& context) {
  if (p.m == 0 || p.n == 0 || (p.groups.by == GroupedBy::k && p.batch == 0)) return;
  with_stages<kLargeMmaStageBytes>([&]<int STAGES>() {
    with_element<float, Half, BFloat16, int8_t>(p.type, [&]<class T>() {
      launch_grouped_mma<LargeMmaTiles<STAGES>, T>(grouped_gemm<T>(p), int(p.batch), context);
    });
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
