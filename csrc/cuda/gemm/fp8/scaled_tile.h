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
// there is no kernel. These constants, the next ones and those of scaled_skinny for more than 64 rows
// (fp8/skinny_tile.h) were fitted together to the times of all tiles (benchmarks/fits/fit_fp8.py), with a
// mean error of 6 %. The best predicted tile takes 1.01 times as long as the best measured one in the mean of
// 110 products, 1.24 at most. 192 x 128 was then made 5 % faster, and its constant with it.
struct ScaledCost {
  int rows, columns, stage[3], tile;
};
inline constexpr ScaledCost kScaledCosts[] = {
    {256, 128, {1090, 1260, 0}, 3300},
    {192, 128, {810, 860, 1350}, 3100},
    {256, 64, {850, 900, 1200}, 2100},  // only of C^T, for few rows of C
    {192, 64, {610, 660, 900}, 3000}};
// Partial sums of a tile of 256 x 128: storing them, and adding those of one other block.
inline constexpr double kScaledHandOver = 20400, kScaledCollect = 2100;
// Tiles of C^T take longer by 1 to 5 %, 192 x 128 with three of them beside each other by 10 %.
inline constexpr double kScaledTurned = 1.03;
// The bytes a cycle of operands that several blocks request at the same time, each line counted once.
inline constexpr double kScaledBytes = 5200;

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

// The cycles of the busiest block. Tiles are computed in bands of 16 tile rows.
inline double scaled_cycles(const ScaledCost& cost, double stage, int64_t rows, int64_t columns, int64_t k,
                            int64_t processors) {
  const int64_t down = ceil_div(rows, cost.rows), across = ceil_div(columns, cost.columns);
  const int64_t stages = specialized_stages(k, 1), chunks = stages / kChunk;
  const int64_t blocks = count_blocks(down * across, chunks, processors);
  const double busy = double(std::min(down * across, blocks)), band = double(std::min<int64_t>(down, 16));
  const double beside = std::min(double(across), busy / band), below = std::min(double(down), busy / beside);
  const double lines =
      std::min(below * cost.rows, double(rows)) + std::min(beside * cost.columns, double(columns));
  const double step = stage + lines * 128 / kScaledBytes;
  const StreamKPlan plan = plan_stream_k(down * across, chunks, blocks, kLastWave);
  const int64_t whole = ceil_div(plan.whole_tiles, blocks);
  const int64_t share = (plan.share + (plan.longer > 0)) * kChunk;
  const double cycles = double(whole) * (double(stages) * step + cost.tile);
  if (share == 0) return cycles;
  const int64_t others = std::max<int64_t>(ceil_div(stages, share) - 1, 1);
  const double fix_up = (kScaledHandOver + kScaledCollect * double(others)) * cost.rows * cost.columns;
  return cycles + double(share) * step + cost.tile + fix_up / (256 * 128);
}

// The tiles with which the busiest block is predicted to finish first.
inline ScaledPlan plan_scaled(int64_t m, int64_t n, int64_t k, const ScaledTiles& tiles, int64_t processors) {
  ScaledPlan best{};
  for (const ScaledCost& cost : kScaledCosts) {
    if (cost.rows > tiles.most_rows || cost.columns > tiles.most_columns) continue;
    for (int turned = 0; turned <= int(tiles.may_turn); ++turned) {
      const int stage = cost.stage[int(tiles.scaling[turned])];
      if (stage == 0 || (cost.rows == 256 && cost.columns == 64 && !turned)) continue;
      const double cycles = scaled_cycles(cost, stage, turned ? n : m, turned ? m : n, k, processors) *
                            (turned && cost.columns == 128 ? kScaledTurned : 1);
      if (best.tile.rows == 0 || cycles < best.cycles)
        best = {{turned == 1, cost.rows, cost.columns}, cycles};
    }
  }
  return best;
}

}  // namespace fastgemm::plans
