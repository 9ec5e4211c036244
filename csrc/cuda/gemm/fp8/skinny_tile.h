// The tiles of scaled_skinny: how they are chosen.
#pragma once

#include <algorithm>

#include "cuda/gemm/fp8/scaled_tile.h"

namespace fastgemm::plans {

// X(rows, columns, splits, turned): a tile of C, or of C^T if `turned`. `splits` blocks, a cluster, share the
// k of a tile.
// clang-format off: a line for each number of columns
#define FASTGEMM_SKINNY_TILES(X)                                                  \
  X(64, 16, 1, true) X(64, 16, 2, true) X(256, 16, 1, true)                       \
  X(64, 64, 1, true) X(64, 64, 2, true) X(128, 64, 1, true) X(256, 64, 1, true)   \
  X(64, 128, 2, true) X(128, 128, 1, true) X(128, 128, 2, true)                   \
  X(128, 128, 1, false) X(128, 128, 2, false)
// clang-format on

struct SkinnyTile {
  int rows, columns, splits;
  bool turned;
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

// Whether a tile is for products of m rows: up to 128 rows are columns of one tile of C^T.
inline bool takes_rows(const SkinnyTile& t, int64_t m) {
  if (t.columns < 128) return m <= t.columns && (m > 16 || t.columns == 16);
  return m > 64 && (t.turned ? m <= (t.rows == 64 ? 256 : 128) : m > 128);
}

struct SkinnyPlan {
  SkinnyTile tile;
  double cycles;
};

// The time of up to 64 rows. In a stage (128 values of k) a block reads its rows of b from memory, and a,
// which other blocks also read, from L2. The constants were fitted to the times of 240 products on an H200,
// with a mean error of 9 %. Bytes per cycle: kBlockBytes of one multiprocessor; of all multiprocessors,
// kBytes from memory and kL2Bytes from L2. Cycles: kStart for a wave of blocks to begin and to store results,
// kMultiply for a warpgroup to multiply a stage, kScaled times as much with scales of blocks.
inline double few_rows_cycles(const SkinnyTile& t, int64_t m, int64_t n, int64_t k, bool by_blocks,
                              int64_t processors) {
  constexpr double kBlockBytes = 49, kBytes = 2400, kL2Bytes = 4850, kStart = 7400;
  constexpr double kMultiply = 160, kScaled = 2.2;
  const int64_t blocks = ceil_div(n, int64_t{t.rows}) * t.splits;
  const double waves = double(ceil_div(blocks, processors)), busy = double(std::min(blocks, processors));
  const double of_b = double(t.rows) * 128, all = of_b + double(m) * 128;
  const double step = std::max({all / kBlockBytes, of_b * busy / kBytes, all * busy / kL2Bytes,
                                kMultiply * (by_blocks ? kScaled : 1)});
  return waves * (kStart + double(ceil_div(specialized_stages(k, 1), int64_t{t.splits})) * step);
}

// The time of more rows, by the same formula as that of scaled_wgmma (fp8/scaled_tile.h). kStage: without and
// with scales of blocks. kSplit: for adding sums in a cluster. kPartial: if the last tile has rows beyond C,
// stages take 1.04 to 1.26 times as long; the cause was not found.
inline double wide_skinny_cycles(const SkinnyTile& t, int64_t m, int64_t n, int64_t k, bool by_blocks,
                                 int64_t processors) {
  constexpr double kStart = 5200, kSplit = 2700, kPartial = 1.12;
  constexpr double kStage[3][2] = {{280, 350}, {530, 740}, {540, 610}};
  const double stage = kStage[t.rows == 64 ? 0 : t.turned ? 1 : 2][int(by_blocks)];
  const int64_t rows = t.turned ? n : m, columns = t.turned ? m : n, splits = t.splits;
  const int64_t down = ceil_div(rows, int64_t{t.rows}), across = ceil_div(columns, int64_t{t.columns});
  const int64_t blocks = down * across * splits;
  const double tiles = double(std::min(blocks, processors)) / double(splits);
  const double beside = std::min(std::max(tiles / double(down), 1.0), double(across));
  const double lines = std::min({double(down) * t.rows, tiles * t.rows, double(rows)}) +
                       std::min(beside * t.columns, double(columns));
  const double longer = m > 128 && m % 128 != 0 ? kPartial : 1;
  const double step = longer * (stage + double(splits) * lines * 128 / kScaledBytes);
  const double wave =
      kStart + kSplit * double(splits - 1) + double(ceil_div(specialized_stages(k, 1), splits)) * step;
  return double(ceil_div(blocks, processors)) * wave;
}

// The tile with the shortest time.
inline SkinnyPlan plan_skinny(int64_t m, int64_t n, int64_t k, bool by_blocks, int64_t processors) {
  SkinnyPlan best{};
  for (const SkinnyTile& t : kSkinnyTiles) {
    if (!takes_rows(t, m) || specialized_stages(k, 1) < 2 * t.splits) continue;
    const double cycles = t.columns < 128 ? few_rows_cycles(t, m, n, k, by_blocks, processors)
                                          : wide_skinny_cycles(t, m, n, k, by_blocks, processors);
    if (best.tile.rows == 0 || cycles < best.cycles) best = {t, cycles};
  }
  return best;
}

}  // namespace fastgemm::plans
