// The tiles of scaled_wgmma: how they are chosen.
#pragma once

#include "core/problem.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::plans {

// A tile of C, or of C^T if `turned`.
struct ScaledTile {
  bool turned;
  int rows, columns;
};

// How scales multiply (fp8/stage_scales.cuh).
enum class Scaling { sums, blocks, columns, blocks_by_columns };

// The cost of tiles in cycles of an H200: for a stage (128 values of k) with each kind of scaling, and for
// the work of a tile before its first and after its last stage. The tensor cores need 1024, 768, 512 and 384
// cycles for a stage. With tiles of 256 rows, the next tile does not begin before this one is stored. 0:
// there is no kernel.
struct ScaledCost {
  int rows, columns, stage[3], tile;
};
inline constexpr ScaledCost kScaledCosts[] = {
    {256, 128, {1030, 1070, 0}, 3400},
    {192, 128, {790, 800, 1390}, 2800},
    {256, 64, {660, 680, 1000}, 1800},  // only of C^T, for few rows of C
    {192, 64, {500, 520, 750}, 1500}};
inline constexpr double kScaledFixUp = 7000;  // for storing partial sums, or for adding those of other blocks
// If all blocks read the same rows of X at the same time, a stage takes longer by this factor.
inline constexpr int kScaledSharedRows = 2;

// How a product and its transpose are scaled, and the limits of the tiles that have a kernel for it.
struct ScaledTiles {
  Scaling scaling[2];
  int most_rows, most_columns;
  bool may_turn;
};

// Whether only 32 values of k share a scale. The products of such groups leave no registers for tiles of 128
// columns.
inline bool has_short_groups(const GemmProblem& p) {
  const int64_t of_a = p.scales_a.block_cols, of_b = p.scales_b.block_rows;
  return (of_a < p.k && of_a < 128) || (of_b < p.k && of_b < 128);
}
// How a product, or its transpose, is scaled. Fewer kernels are compiled for codes other than e4m3: they have
// no tiles of 256 rows or 64 columns, no tiles of C^T, and no Scaling::blocks. So they are slower.
inline Scaling scaling_of(const GemmProblem& p, bool turned) {
  if (has_short_groups(p)) return Scaling::columns;
  if (p.scales_a.block_cols >= p.k && p.scales_b.block_rows >= p.k) return Scaling::sums;
  const int64_t lines = turned ? p.scales_a.block_rows : p.scales_b.block_cols;
  const bool by_block = p.type == DType::e4m3 && lines >= std::min<int64_t>(turned ? p.m : p.n, 128);
  return by_block ? Scaling::blocks : Scaling::columns;
}
// `stores_boxes`: the TMA can store the result.
inline ScaledTiles scaled_tiles(const GemmProblem& p, bool stores_boxes) {
  const bool plain = p.type == DType::e4m3, is_short = has_short_groups(p);
  return {{scaling_of(p, false), scaling_of(p, true)},
          plain && stores_boxes && !is_short ? 256 : 192,
          is_short ? 64 : 128,
          plain};
}

struct ScaledPlan {
  ScaledTile tile;
  double cycles;
};

// The tiles with which the busiest block is predicted to finish first.
inline ScaledPlan plan_scaled(int64_t m, int64_t n, int64_t k, const ScaledTiles& tiles, int64_t processors) {
  ScaledTile best{};
  double least = 0;
  const int64_t stages = specialized_stages(k, 1), chunks = stages / kChunk;
  for (const ScaledCost& cost : kScaledCosts) {
    if (cost.rows > tiles.most_rows || cost.columns > tiles.most_columns) continue;
    for (int turned = 0; turned <= int(tiles.may_turn); ++turned) {
      const int64_t down = ceil_div(turned ? n : m, cost.rows),
                    across = ceil_div(turned ? m : n, cost.columns);
      const int64_t stage =
          cost.stage[int(tiles.scaling[turned])] * (down == 1 && across > 1 ? kScaledSharedRows : 1);
      if (stage == 0 || (cost.rows == 256 && cost.columns == 64 && !turned)) continue;
      const int64_t count = down * across;
      const int64_t blocks = count_blocks(count, chunks, processors);
      const StreamKPlan plan = plan_stream_k(count, chunks, blocks, kLastWave);
      const int64_t whole = ceil_div(plan.whole_tiles, blocks), share = plan.share + (plan.longer > 0);
      double time = double(whole) * double(stages * stage + cost.tile);
      if (share > 0) time += double(share * kChunk * stage + cost.tile) + kScaledFixUp;
      if (best.rows == 0 || time < least) best = {turned == 1, cost.rows, cost.columns}, least = time;
    }
  }
  return {best, least};
}

}  // namespace fastgemm::plans
