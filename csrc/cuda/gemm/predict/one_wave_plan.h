// one_wave: the tile of a product, chosen so that about as many blocks begin at once as the GPU has
// multiprocessors. The launcher and the prediction call plan_one_wave(), so that what is predicted is what
// runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/gpu.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::plans {

// The tiles: X(rows, columns, splits). Rows belong to the shorter side of C. `splits` blocks, a cluster,
// share the k of a tile. All are compiled for operands that lie along k. Where m or n runs along the rows of
// an operand, its tile is made of boxes of 64, so only these tiles are compiled for such operands.
#define FASTGEMM_WAVE_TILES_OF_BOXES(X) \
  X(64, 64, 1)                          \
  X(64, 128, 1) X(128, 64, 1) X(128, 128, 1) X(128, 192, 1) X(192, 128, 1) X(64, 64, 2) X(64, 64, 4)
#define FASTGEMM_WAVE_TILES(X)    \
  FASTGEMM_WAVE_TILES_OF_BOXES(X) \
  X(64, 32, 1)                    \
  X(64, 80, 1) X(128, 72, 1) X(128, 96, 1) X(128, 144, 1) X(192, 96, 1) X(64, 32, 2) X(128, 64, 2)

struct WaveTile {
  int rows, columns, splits;
};
#define FASTGEMM_WAVE_TILE(...) {__VA_ARGS__},
inline constexpr WaveTile kWaveTilesOfBoxes[] = {FASTGEMM_WAVE_TILES_OF_BOXES(FASTGEMM_WAVE_TILE)};
inline constexpr WaveTile kWaveTiles[] = {FASTGEMM_WAVE_TILES(FASTGEMM_WAVE_TILE)};
#undef FASTGEMM_WAVE_TILE

// The shared memory of a block: partial sums that the other blocks of a cluster send, and a ring of stages.
inline constexpr int kWaveRing = 220 << 10, kMostWaveStages = 16;
constexpr int wave_partial_bytes(const WaveTile& t) {
  return (t.splits - 1) * t.rows * (t.columns / t.splits) * 4;
}
constexpr int wave_stages(const WaveTile& t) {
  return std::min(kMostWaveStages, (kWaveRing - wave_partial_bytes(t)) / ((t.rows + t.columns) * 128));
}

// A product as one_wave sees it: x is the shorter side of C. `stages` are 128 bytes of k each.
struct WaveProblem {
  int64_t batch, x, y, stages;
  double bytes;  // of operands and result
};
inline WaveProblem wave_problem(int64_t batch, int64_t m, int64_t n, int64_t k, int element_bytes,
                                int out_bytes) {
  const double elements = double(m) * double(n), operands = double(m + n) * double(k);
  return {batch, std::min(m, n), std::max(m, n), ceil_div(k, 128 / element_bytes),
          double(batch) * (operands * element_bytes + elements * out_bytes)};
}

// The time of a product with a tile, in seconds. Constants were measured on an H100 (bf16, tiles of 64 to 192
// rows): a step takes as long as its multiply-adds, or as its bytes from L2, or as the latency of memory
// divided by the stages that are on their way. Blocks that begin one after another share the tile of Y, which
// L2 then delivers once for several of them.
inline double wave_seconds(const WaveTile& t, const WaveProblem& p, const Gpu& gpu) {
  constexpr double kShared = 2.1, kLatency = 1.1e-6, kLeastStep = 0.13e-6, kStart = 0.64e-6, kSend = 0.1e-6;
  const double cycle = 1 / (0.81 * gpu.clock), sms = gpu.multiprocessors;
  const int64_t tiles_x = ceil_div(p.x, t.rows), tiles_y = ceil_div(p.y, t.columns);
  const int64_t blocks = p.batch * tiles_x * tiles_y * t.splits;
  // Not all clusters of 4 find room at the same time.
  const int64_t at_once = gpu.multiprocessors * (t.splits == 4 ? 10 : 11) / 11;
  const auto shared = [](int64_t distance) {
    return 1 + (kShared - 1) * (distance <= 2 ? 1.0 : 2.0 / double(distance));
  };
  const double from_l2 = t.rows / (tiles_y > 1 ? shared(tiles_x * t.splits) : 1) +
                         t.columns / (tiles_x > 1 ? shared(t.splits) : 1);
  const double multiply = double(t.rows * t.columns) / 32 * cycle;
  const double load = from_l2 * 128 * double(std::min(blocks, at_once)) / (29.4 * sms * gpu.clock);
  const double both = std::pow(std::pow(multiply, 3.4) + std::pow(load, 3.4), 1 / 3.4);
  const double step = std::max({both, kLatency / wave_stages(t), kLeastStep});
  const double tile = double(t.rows * t.columns) / 16384;
  const double stored = 1.43e-6 * tile;
  const double sent = t.splits > 1 ? kSend + 4.5e-6 * tile * (t.splits - 1) / t.splits : 0;
  const double wave = kStart + double(ceil_div(p.stages, t.splits)) * step + stored + sent;
  const double work = double(ceil_div(blocks, at_once)) * wave,
               memory = p.bytes / (0.8 * gpu.bandwidth) + kStart;
  return std::pow(std::pow(work, 4) + std::pow(memory, 4), 0.25);
}

struct WavePlan {
  WaveTile tile;
  double seconds;
};
inline WavePlan plan_one_wave(const WaveProblem& p, bool along_k, const Gpu& gpu) {
  WavePlan best{{}, std::numeric_limits<double>::infinity()};
  const auto consider = [&](const WaveTile& tile) {
    if (tile.splits > 1 && p.stages < 2 * tile.splits) return;  // the parts of k are too short
    const double seconds = wave_seconds(tile, p, gpu);
    if (seconds < best.seconds) best = {tile, seconds};
  };
  if (along_k)
    for (const WaveTile& tile : kWaveTiles) consider(tile);
  else
    for (const WaveTile& tile : kWaveTilesOfBoxes) consider(tile);
  return best;
}

}  // namespace fastgemm::plans
