// The tiles of scaled_wgmma: how they are chosen.
#pragma once

#include "cuda/gemm/predict/plans.h"

namespace fastgemm::plans {

// A tile of C, or of C^T if `turned`.
struct ScaledTile {
  bool turned;
  int rows, columns;
};

// How scales multiply (fp8/stage_scales.cuh).
enum class Scaling { sums, blocks, columns };

// What tiles cost, in cycles of an H200: a stage (128 of k) for each kind of scaling, and what a tile takes
// before its first and after its last stage. The tensor cores need 1024, 768, 512 and 384 cycles for a stage.
// Tiles of 256 rows do not begin the next tile before this one is stored. 0: there is no kernel.
struct ScaledCost {
  int rows, columns, stage[3], tile;
};
inline constexpr ScaledCost kScaledCosts[] = {
    {256, 128, {1030, 1070, 0}, 3400},
    {192, 128, {790, 800, 1390}, 2800},
    {256, 64, {660, 680, 1000}, 1800},  // of C^T alone: for few rows
    {192, 64, {500, 520, 750}, 1500}};
inline constexpr double kScaledFixUp = 7000;  // to hand over sums, or to collect them
// Where all blocks read the same rows of X at the same time, a stage takes longer by this factor.
inline constexpr int kScaledSharedRows = 2;

// How a product and its transpose are scaled, and the limits of the tiles that have a kernel for it.
struct ScaledTiles {
  Scaling scaling[2];
  int most_rows, most_columns;
  bool may_turn;
};

// The tiles with which the busiest block is predicted to finish first.
inline ScaledTile scaled_tile(int64_t m, int64_t n, int64_t k, const ScaledTiles& tiles, int64_t processors) {
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
  return best;
}

}  // namespace fastgemm::plans
