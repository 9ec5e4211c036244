// The tiles of scaled_wgmma and grouped_scaled_wgmma: registers, shared memory, and scales of whole lines.
#pragma once

#include <limits>

#include "cuda/gemm/fp8/promoted.cuh"
#include "cuda/gemm/fp8/scaled_tile.h"
#include "cuda/gemm/fp8/spread_scales.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// What a block keeps in shared memory beside stages and boxes.
template <int M, int N, Scaling scaling>
struct ScaledTail {
  BlockShare share;
};
template <int M, int N>
struct ScaledTail<M, N, Scaling::sums> {
  BlockShare share;
  LineScales<N> scales[M / 64][2];  // of each warpgroup
};
// Tiles (M, N), whose stages are multiplied WIDTH columns at a time.
template <int M, int N, int WIDTH, Scaling SCALING, int GROUP, class Tail = ScaledTail<M, N, SCALING>>
struct ScaledShape : RoomShape<N, (M + N) * 128 + ScaleBoxes<SCALING, M, N, GROUP>::kRoom, Tail, M> {
  static constexpr Scaling kScaling = SCALING;
  static constexpr int kGroup = GROUP, kWidth = WIDTH;
  static constexpr bool kAddsC = false, kReadsXOnce = false;
  // With four warpgroups that multiply, no registers are left for threads that store rows by themselves, or
  // for a product during the epilogue.
  static constexpr bool kOnlyBoxes = M == 256, kIssuesAhead = !kOnlyBoxes;
  static constexpr int kConsumerRegisters = kOnlyBoxes ? 112 : N == 128 ? 152 : 136;
  static constexpr int kProducerRegisters = kOnlyBoxes ? 32 : N == 128 ? 56 : 104;
  static_assert(M / 64 * kConsumerRegisters + kProducerRegisters <= (kOnlyBoxes ? 480 : 512));
};

// Both operands are e4m3.
using Plain = Fp8Pair<E4M3, E4M3>;

// The result's numbers; float32 is its wide type.
using Out16 = BFloat16;

// Scales of whole lines. They are copied unless they are float32, with one scale for each line or one for
// all.
inline LineScale line_scale(const BlockScales& s, int64_t lines, int64_t k, Context& context) {
  if (s.type == ScaleType::f32 && (s.block_rows == 1 || s.block_rows >= lines))
    return {static_cast<const float*>(s.data), s.block_rows >= lines ? 0 : s.row_stride, int(lines)};
  return {spread_scales(s, lines, k, int(k), context).data, 1, int(lines)};
}

// The map of boxes (groups of a stage, side of a tile).
inline TensorMap map_of_scales(const BlockScales& s, int64_t lines, int64_t k, int group, int side,
                               Context& context) {
  const SpreadScales spread = spread_scales(s, lines, k, group, context);
  const int64_t groups = ceil_div(k, int64_t{group});
  return make_tensor_map({spread.data, 4, lines, groups, 1, spread.pitch * 4, groups * spread.pitch * 4, side,
                          128 / group, Swizzle::none});
}

// Scales of blocks, in place. Those of e8m0 are copied.
inline BlockLine block_line(const BlockScales& s, int64_t lines, int64_t k, Context& context) {
  const int groups = int(ceil_div(k, int64_t{128}));
  const int64_t of_block = std::min(s.block_rows, lines), blocks = ceil_div(lines, of_block);
  const int64_t group_stride = s.block_cols >= k ? 0 : s.col_stride;
  const int64_t last = (blocks - 1) * s.row_stride + (groups - 1) * group_stride;
  if (s.type != ScaleType::f32 || last > std::numeric_limits<int>::max()) {
    const SpreadScales spread = spread_scales(s, lines, k, 128, context);
    return {spread.data, 1, int(spread.pitch), 1, int(lines), groups};
  }
  return {static_cast<const float*>(s.data),
          int(s.row_stride),
          int(group_stride),
          int(of_block),
          int(blocks),
          groups};
}

// The scales of the lines of one side.
struct ScaledLines {
  BlockScales scales;  // of lines and k
  int64_t lines;
};
// The scales of both operands as the tiles of S read them.
template <class S>
OperandScales operand_scales(const ScaledLines& x, const ScaledLines& y, int64_t k, Context& context) {
  OperandScales made{};
  if constexpr (S::kScaling == Scaling::sums) {
    made.x = line_scale(x.scales, x.lines, k, context), made.y = line_scale(y.scales, y.lines, k, context);
  } else {
    if constexpr (S::kScaling == Scaling::blocks_by_columns)
      made.blocks = block_line(x.scales, x.lines, k, context);
    else
      made.box_x = map_of_scales(x.scales, x.lines, k, S::kGroup, S::kM, context);
    if constexpr (S::kScaling == Scaling::blocks)
      made.blocks = block_line(y.scales, y.lines, k, context);
    else
      made.box_y = map_of_scales(y.scales, y.lines, k, S::kGroup, S::kN, context);
  }
  return made;
}

}  // namespace fastgemm::FASTGEMM_TARGET
