// How bf16x6_fused (fast/bf16x6_fused.cu) divides its product: the tile, and the number of splits of k.
#pragma once

#include "cuda/gemm/predict/plans.h"

namespace fastgemm::plans {

inline constexpr int kFusedDepth = 32;  // values of k in a stage

// A tile has 128 rows of the longer side of C and 16, 32 or 64 columns. Tall tiles have 256 rows: they cut
// the columns once for twice as many rows. But a multiprocessor has room for only one of them, and is idle
// while its ring is filled, so they pay where k is long.
struct FusedTile {
  int rows, columns;

  constexpr bool tall() const { return rows == 256; }
  constexpr int most_blocks() const { return tall() ? 1 : columns == 16 ? 3 : 2; }  // on a multiprocessor
};

// The bytes of shared memory of a block that multiplies by mma.sync.
constexpr int64_t fused_bytes(const FusedTile& tile, bool rows_along_k) {
  const int64_t row_words = rows_along_k ? tile.rows * kFusedDepth : kFusedDepth * (tile.rows + 8);
  const int64_t apart = rows_along_k ? 4 : tile.columns > 16 ? 8 : 24;  // banks between lines of columns
  const int64_t pitch = tile.columns + (apart + 32 - tile.columns % 32) % 32;
  return 2 * 4 * (row_words + kFusedDepth * pitch) + 2 * 2 * 3 * 8 * 4 * tile.columns;
}
// The blocks that the device holds at the same time. On some GPUs shared memory limits them before registers
// do; each block takes 1 KB more than it asks for.
inline int64_t fused_slots(const FusedTile& tile, bool rows_along_k, const Gpu& gpu) {
  constexpr int64_t kBesides = 1024;
  const int64_t fit = (gpu.shared_bytes + kBesides) / (fused_bytes(tile, rows_along_k) + kBesides);
  return (gpu.wgmma ? tile.most_blocks() : std::clamp<int64_t>(fit, 1, tile.most_blocks())) *
         gpu.multiprocessors;
}

// The number of splits of k, and the predicted time. The unit of time is a multiprocessor's time for a stage
// of 128 x 64 tiles. With wgmma, filling the ring takes about 3 units, and so do a second launch and the
// transfer of a block's sums. With mma.sync a stage takes at least twice as long, so these are fewer units.
inline Splits choose_fused_splits(int64_t tiles, int64_t steps, int64_t slots, double stage, double fill) {
  constexpr int64_t kLeastSteps = 2, kMostWaves = 8;
  const auto time = [&](int64_t splits) {
    const int64_t waves = ceil_div(tiles * splits, slots);
    return double(waves) * (stage * double(ceil_div(steps, splits)) + fill + (splits > 1)) +
           (splits > 1 ? fill : 0);
  };
  // For a given number of waves, the parts of k are shortest with the most blocks. If several numbers of
  // blocks give equally short parts, the smallest is taken, because it is as fast.
  const auto within = [&](int64_t, int64_t last) {
    const int64_t splits = ceil_div(steps, ceil_div(steps, last));
    return std::pair{splits, splits};
  };
  const int64_t most = std::min(steps / kLeastSteps, (kMostWaves * slots - 1) / tiles + 1);
  return fastest_splits(tiles, most, slots, time, within);
}

struct FusedPlan {
  FusedTile tile;
  Splits splits;
  int64_t slots;
};
inline FusedPlan plan_fused(int64_t batch, int64_t rows, int64_t columns, int64_t k, bool rows_along_k,
                            const Gpu& gpu) {
  const auto tiles_of = [&](const FusedTile& tile) {
    return batch * ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns);
  };
  const auto plan = [&](const FusedTile& tile) {
    const double stage = tile.tall() ? 0.92 : 1, fill = !gpu.wgmma ? 1.5 : tile.tall() ? 3.3 : 3;
    const int64_t slots = fused_slots(tile, rows_along_k, gpu);
    return FusedPlan{tile, choose_fused_splits(tiles_of(tile), ceil_div(k, kFusedDepth), slots, stage, fill),
                     slots};
  };
  if (columns <= 16) return plan({128, 16});
  if (columns <= 32) return plan({128, 32});
  const FusedPlan wide = plan({128, 64});
  // Narrower tiles are better if wide ones would leave half of each multiprocessor idle.
  if (tiles_of(wide.tile) <= gpu.multiprocessors && wide.splits.count == 1) return plan({128, 32});
  if (!gpu.wgmma) return wide;
  const FusedPlan tall = plan({256, 64});
  return tall.splits.time < wide.splits.time ? tall : wide;
}

}  // namespace fastgemm::plans
