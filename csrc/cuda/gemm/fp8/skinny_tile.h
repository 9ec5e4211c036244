// The tiles of scaled_skinny: how they are chosen.
#pragma once

#include <algorithm>

#include "cuda/gemm/predict/plans.h"

namespace fastgemm::plans {

// X(rows, columns, splits): rows are columns of C, and columns are rows of C. `splits` blocks, a cluster,
// share the k of a tile.
// clang-format off: a line for each number of rows of C
#define FASTGEMM_SKINNY_TILES(X)                                          \
  X(64, 16, 1) X(64, 16, 2) X(256, 16, 1)                                 \
  X(64, 64, 1) X(64, 64, 2) X(128, 64, 1) X(256, 64, 1)                   \
  X(64, 128, 2) X(128, 128, 1) X(128, 128, 2)
// clang-format on

struct SkinnyTile {
  int rows, columns, splits;
  bool operator==(const SkinnyTile&) const = default;
};
#define FASTGEMM_SKINNY_TILE(...) {__VA_ARGS__},
inline constexpr SkinnyTile kSkinnyTiles[] = {FASTGEMM_SKINNY_TILES(FASTGEMM_SKINNY_TILE)};
#undef FASTGEMM_SKINNY_TILE

// The number of stages that fit beside the scales and the sums that the other blocks of a cluster send.
constexpr int skinny_stages(const SkinnyTile& t, int stage_bytes) {
  const int sums = (t.splits - 1) * t.rows * (t.columns / t.splits) * 4;
  return std::min(16, ((216 << 10) - sums) / stage_bytes);
}

struct SkinnyPlan {
  SkinnyTile tile;
  double cycles;
};

// The tile with the shortest time. In a stage (128 values of k) a block reads its rows of b from memory, and
// a, which other blocks also read, from L2. The constants were fitted to the times of 240 products on an
// H200, with a mean error of 9 %. Bytes per cycle: kBlockBytes of one multiprocessor; of all multiprocessors,
// kBytes from memory and kL2Bytes from L2. Cycles: kStart for a wave of blocks to begin and to store results,
// kMultiply for a warpgroup to multiply a stage. Factors on kMultiply: kTwo for two warpgroups with 128 rows
// of C, kScaled with scales of blocks.
inline SkinnyPlan plan_skinny(int64_t m, int64_t n, int64_t k, bool by_blocks, int64_t processors) {
  constexpr double kBlockBytes = 49, kBytes = 2400, kL2Bytes = 4850, kStart = 7400;
  constexpr double kMultiply[] = {160, 160, 280}, kTwo = 1.6, kScaled = 2.2;
  SkinnyPlan best{};
  const int64_t stages = specialized_stages(k, 1);
  const int kind = m <= 16 ? 0 : m <= 64 ? 1 : 2, columns = kind == 0 ? 16 : 64 * kind;
  for (const SkinnyTile& t : kSkinnyTiles) {
    if (t.columns != columns || stages < 2 * t.splits) continue;
    const int64_t blocks = ceil_div(n, int64_t{t.rows}) * ceil_div(m, int64_t{columns}) * t.splits;
    const double waves = double(ceil_div(blocks, processors)), busy = double(std::min(blocks, processors));
    const double of_b = double(t.rows) * 128, all = of_b + double(std::min<int64_t>(m, columns)) * 128;
    const double multiply =
        kMultiply[kind] * (kind == 2 && t.rows == 128 ? kTwo : 1) * (by_blocks ? kScaled : 1);
    const double step = std::max({all / kBlockBytes, of_b * busy / kBytes, all * busy / kL2Bytes, multiply});
    const double cycles = waves * (kStart + double(ceil_div(stages, int64_t{t.splits})) * step);
    if (best.tile.rows == 0 || cycles < best.cycles) best = {t, cycles};
  }
  return best;
}

}  // namespace fastgemm::plans
