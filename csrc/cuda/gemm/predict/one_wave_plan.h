// one_wave: the tile of a product, chosen so that about as many blocks begin at once as the GPU has
// multiprocessors. The launcher and the prediction call plan_one_wave(), so that what is predicted is what
// runs.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "core/gpu.h"
#include "core/min_max.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::plans {

// The tiles: X(rows, columns, splits, resident). Rows belong to the shorter side of C. `splits` blocks, a
// cluster, share the k of a tile. `resident` blocks share a multiprocessor: with two, one loads and
// multiplies while the other stores. All tiles are compiled for operands that lie along k. If m or n runs
// along the rows of an operand, its tile is made of boxes of 64. So for such operands only the tiles of
// FASTGEMM_WAVE_TILES_OF_BOXES are compiled.
// clang-format off: a line for each number of rows, splits, and of blocks on a multiprocessor
#define FASTGEMM_WAVE_TILES_OF_BOXES(X)                \
  X(64, 64, 1, 1) X(64, 128, 1, 1)                     \
  X(128, 64, 1, 1) X(128, 128, 1, 1) X(128, 192, 1, 1) \
  X(192, 128, 1, 1)                                    \
  X(64, 64, 2, 1) X(64, 64, 4, 1)                      \
  X(64, 64, 1, 2) X(128, 128, 1, 2)
#define FASTGEMM_WAVE_TILES(X)                         \
  FASTGEMM_WAVE_TILES_OF_BOXES(X)                      \
  X(64, 32, 1, 1) X(128, 96, 1, 1)                     \
  X(64, 32, 2, 1) X(128, 64, 2, 1)                     \
  X(64, 128, 1, 2)
// clang-format on

struct WaveTile {
  int rows, columns, splits, resident;
  bool operator==(const WaveTile&) const = default;
};
#define FASTGEMM_WAVE_TILE(...) {__VA_ARGS__},
inline constexpr WaveTile kWaveTilesOfBoxes[] = {FASTGEMM_WAVE_TILES_OF_BOXES(FASTGEMM_WAVE_TILE)};
inline constexpr WaveTile kWaveTiles[] = {FASTGEMM_WAVE_TILES(FASTGEMM_WAVE_TILE)};
#undef FASTGEMM_WAVE_TILE

// The shared memory of a block: partial sums that the other blocks of a cluster send, and a ring of stages.
inline constexpr int kMostWaveStages = 16;
constexpr int wave_ring(int resident) { return (resident == 1 ? 220 : 112) << 10; }
constexpr int wave_partial_bytes(const WaveTile& t) {
  return (t.splits - 1) * t.rows * (t.columns / t.splits) * 4;
}
constexpr int wave_stages(const WaveTile& t) {
  return std::min(kMostWaveStages,
                  (wave_ring(t.resident) - wave_partial_bytes(t)) / ((t.rows + t.columns) * 128));
}

// A product as one_wave sees it: x is the shorter side of C. `stages` are 128 bytes of k each.
struct WaveProblem {
  int64_t batch, x, y, stages;
  double bytes_y, bytes;  // of Y; of operands and result
};
inline WaveProblem wave_problem(int64_t batch, int64_t m, int64_t n, int64_t k, int element_bytes,
                                int out_bytes) {
  const double elements = double(m) * double(n), operands = double(m + n) * double(k);
  return {batch,
          std::min(m, n),
          std::max(m, n),
          ceil_div(k, 128 / element_bytes),
          double(batch) * double(std::max(m, n)) * double(k) * element_bytes,
          double(batch) * (operands * element_bytes + elements * out_bytes)};
}

// The time of a product with a tile, in seconds. A step takes the longest of these times: of its
// multiply-adds, of its bytes from L2, and the latency of memory divided by the stages in flight. The
// constants were fitted to 2,400 measured times of all tiles, with a mean error of 9 % (an H200, bf16, calls
// in CUDA graphs). kClock is the share of the clock that tensor cores keep under load. kL2Bytes are bytes of
// L2 per cycle and multiprocessor, kBandwidth the share of the bandwidth of memory that is reached. Each
// further tile of X reads a share kAgain of Y from memory again. The other constants are times. kLatency and
// kLeastStep belong to a step, kStart to the start, kStores to the stores of 128 x 128 sums, to which a
// second block adds the share kSecond. kCluster and kSend belong to sums that are sent in a cluster.
inline double wave_seconds(const WaveTile& t, const WaveProblem& p, const Gpu& gpu) {
  constexpr double kClock = 0.75, kL2Bytes = 57, kBandwidth = 0.7, kAgain = 0.12, kMostAgain = 7;
  constexpr double kLatency = 1.29e-6, kLeastStep = 0.142e-6, kStart = 1.53e-6;
  constexpr double kStores = 1.52e-6, kSecond = 0.13, kCluster = 0.36e-6, kSend = 2.7e-6;
  const int64_t tiles_x = ceil_div(p.x, t.rows);
  const int64_t blocks = p.batch * tiles_x * ceil_div(p.y, t.columns) * t.splits;
  // Not all clusters of 4 find room at the same time.
  const int64_t room = gpu.multiprocessors * t.resident * (t.splits == 4 ? 10 : 11) / 11;
  const int64_t at_once = std::max<int64_t>(room, t.splits);
  const double together = double(std::min<int64_t>(t.resident, ceil_div(blocks, gpu.multiprocessors)));
  const double busy = double(std::min(blocks, at_once)) / (together * double(gpu.multiprocessors));
  const double tile = double(t.rows * t.columns) / 16384;
  const double multiply = double(t.rows * t.columns) / (32 * kClock * gpu.clock);
  const double load = double(t.rows + t.columns) * 128 * busy / (kL2Bytes * gpu.clock);
  const double step =
      std::max({multiply * together, load * together, kLatency / wave_stages(t), kLeastStep * together});
  const double sums = t.splits > 1 ? kCluster + kSend * tile * (t.splits - 1) / t.splits : 0;
  const double stores = kStores * tile * (1 + kSecond * (together - 1));
  const double wave = kStart + double(ceil_div(p.stages, t.splits)) * step + stores + sums;
  const double work = double(ceil_div(blocks, at_once)) * wave;
  const double again = kAgain * std::min(double(tiles_x - 1), kMostAgain) * p.bytes_y;
  const double memory = (p.bytes + again) / (kBandwidth * gpu.bandwidth) + kStart;
  return std::sqrt(std::sqrt(std::pow(work, 4) + std::pow(memory, 4)));
}

struct WavePlan {
  WaveTile tile;
  double seconds;
};
inline WavePlan plan_one_wave(const WaveProblem& p, bool along_k, const Gpu& gpu) {
  WavePlan best{{}, std::numeric_limits<double>::infinity()};
  for (const WaveTile& tile : along_k ? std::span<const WaveTile>(kWaveTiles) : kWaveTilesOfBoxes) {
    // Parts of k would be too short, or a cluster would not fit.
    if (tile.splits > 1 && (p.stages < 2 * tile.splits || tile.splits > gpu.multiprocessors)) continue;
    const double seconds = wave_seconds(tile, p, gpu);
    if (seconds < best.seconds) best = {tile, seconds};
  }
  return best;
}

}  // namespace fastgemm::plans
