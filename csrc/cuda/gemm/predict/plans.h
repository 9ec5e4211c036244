// How kernels divide their work: the number of splits of k, the size of tiles, and which tiles blocks share.
// Launchers and predictions (counts.h) call the same functions, so that what is predicted is what runs. The
// functions take plain numbers, and know a GPU only as struct Gpu describes it. They are called for each new
// signature of a call, so they have no long loops. Functions of single kernels
// lie in narrow_plan.h, fused_plan.h and one_wave_plan.h, and in fp8/scaled_tile.h and
// parts/schedules/decode_tiles.cuh.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <utility>

#include "core/gpu.h"
#include "core/min_max.h"

namespace fastgemm::plans {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The value with the least time; among equal times, the first one.
template <class Time>
constexpr int fastest(std::initializer_list<int> values, Time time) {
  int best = *values.begin();
  for (const int value : values)
    if (time(value) < time(best)) best = value;
  return best;
}

// The number of splits of k with the shortest time, up to `most`. Splits that make the same number of waves
// of blocks are a range, and within(first, last) says which of them may be the fastest.
struct Splits {
  int count;
  double time;
};
template <class Time, class Within>
Splits fastest_splits(int64_t tiles, int64_t most, int64_t slots, Time time, Within within) {
  Splits best{1, time(1)};
  for (int64_t first = 2, last; first <= most; first = last + 1) {
    last = std::min(most, ceil_div(tiles * first, slots) * slots / tiles);
    const auto [from, to] = within(first, last);
    for (int64_t splits = from; splits <= to; ++splits)
      if (const double t = time(splits); t < best.time) best = {int(splits), t};
  }
  return best;
}

// The number of splits of k, each at least `least` values of k long (choose_splits.cuh). The unit of time is
// what a multiprocessor needs for a whole tile, and the time of a launch is that of the multiprocessor with
// the most blocks. Two constants are in it. kAlone: a block that is alone on its multiprocessor hides less
// latency, and takes 1.15 times as long. kTransfer: each split costs the transfer of its sums, on an H200 a
// quarter of tiles / k. Up to four waves of blocks are considered.
inline int choose_splits(int64_t tiles, int64_t k, int64_t least, int64_t processors) {
  constexpr double kAlone = 1.15, kTransfer = 0.25;
  const auto work = [&](int64_t splits) {  // of the busiest multiprocessor, in splits
    const int64_t blocks = tiles * splits;
    return (blocks <= processors ? kAlone : 1.0) * double(ceil_div(blocks, processors));
  };
  const auto time = [&](int64_t splits) {
    if (splits == 1) return double(ceil_div(tiles, processors));
    return work(splits) / double(splits) + kTransfer * double(tiles * splits) / double(k);
  };
  // For a given number of waves the time is c / splits + d * splits. It is least where both terms are equal.
  const auto within = [&](int64_t first, int64_t last) {
    const double d = kTransfer * double(tiles) / double(k);
    const int64_t at = std::clamp(int64_t(std::sqrt(work(first) / d)), first, last);
    return std::pair{std::max(first, at - 1), std::min(last, at + 2)};
  };
  const int64_t most = std::min(k / least, (4 * processors - 1) / tiles + 1);
  return fastest_splits(tiles, most, processors, time, within).count;
}

// `small` and `batched`: the values of k in a step, and the number of splits.
constexpr int small_depth(int element_bytes) { return element_bytes == 1 ? 64 : 32; }
inline int small_splits(int64_t tiles, int64_t k, int element_bytes, int64_t processors) {
  const int64_t least = 2 * small_depth(element_bytes);
  const int64_t least_k = 4 * least;  // for a shorter k a second launch costs more than it gains
  return k < least_k ? 1 : choose_splits(tiles, k, least, processors);
}

// cp_async: the words of panels hold four elements of one byte along k, or one larger element.
inline constexpr int kCpAsyncDepth = 16;  // words
inline int cp_async_splits(int64_t tiles, int64_t steps, int64_t processors) {
  return choose_splits(tiles, steps * kCpAsyncDepth, 8 * kCpAsyncDepth, processors);
}

// `direct`: a step has 2 or 4 values of each slot of a fragment. A value packs elements of up to four bytes
// together.
constexpr int direct_packed(int element_bytes) { return element_bytes >= 4 ? 1 : 4 / element_bytes; }
constexpr int direct_depth(int element_bytes, int values) {  // values of k in a warp's step
  return 4 * direct_packed(element_bytes) * values;
}
constexpr int direct_warps(int element_bytes, int values) {  // the most warps of a block
  return values < 4 ? 4 : element_bytes == 1 ? 8 : 12;
}
constexpr int direct_values(int element_bytes, int64_t k) {
  return k <= direct_depth(element_bytes, 2) ? 2 : 4;
}

// The number of warps that share a tile, and the number of blocks that share its k.
struct DirectPlan {
  int together, splits;
};
// A multiprocessor holds 12 warps. If blocks share k, the second launch takes as long as two rounds of a
// tile's warps along k.
inline DirectPlan plan_direct(int64_t tiles, int64_t steps, int most_warps, int64_t batch,
                              int64_t processors) {
  constexpr int64_t kWarps = 12, kWorthIt = 5, kRounds = 2, kMostBlocksZ = 65535;
  const int64_t room = kWarps / 4 * processors, rounds = ceil_div(steps, 4);
  if (tiles > room) return {steps > 1 && tiles * 2 <= kWarps * processors ? 2 : 1, 1};
  if (rounds >= kWorthIt && tiles * 2 <= room) {
    const int64_t splits = std::min(room / tiles, rounds / kRounds);
    return {4, splits * batch > kMostBlocksZ ? 1 : int(splits)};
  }
  if (rounds > 1 && tiles <= processors) return {int(std::min<int64_t>(most_warps, 4 * rounds)), 1};
  return {4, 1};
}

// outer: a tile has 1 KB of each of 16 rows, and a block goes down up to 8 tiles. Steps are those
// of `direct`, with 2 or 4 values; with 4 values of 16-bit types, 1 KB would take too many registers.
inline constexpr int kOuterRows = 16;
constexpr int outer_most_chunks(int result_bytes) { return result_bytes == 8 ? 4 : 8; }
constexpr int outer_columns(int result_bytes, int values) {
  return (values == 4 && result_bytes == 2 ? 512 : 1024) / result_bytes;
}
constexpr int outer_warps(int result_bytes, int values) {  // each has at most 64 columns
  return outer_columns(result_bytes, values) * result_bytes / 128;
}
constexpr int outer_blocks(int result_bytes, int values) {  // of a multiprocessor
  const int warps = values == 2 ? 24 : result_bytes == 2 ? 12 : 16;
  return warps / outer_warps(result_bytes, values);
}
inline int64_t outer_chunks(int64_t rows, int64_t strips, int blocks, int most, int64_t processors) {
  return std::clamp<int64_t>(rows * strips / (blocks * processors), 1, most);
}

// small_tile: k is split so that every multiprocessor has a block, with at least four stages each.
inline int small_tile_splits(int64_t tiles, int64_t stages, int64_t processors) {
  constexpr int64_t kLeast = 4, kWorthIt = 16;  // stages; with fewer, a second launch takes longer
  if (stages < kWorthIt) return 1;
  return int(std::clamp<int64_t>(processors / tiles, 1, stages / kLeast));
}

// split_k: each part has at least four stages, and there are at most as many blocks as multiprocessors. One
// more part makes the others shorter, but it is one more C to write and to read. So the best number falls
// with the square root of C's size, and hardly depends on k.
inline constexpr int kSplitKTile = 128;
inline int split_k_splits(int64_t tiles, double c_elements, int64_t stages, int64_t processors) {
  const int64_t room = processors / tiles,
                worth = int64_t(48 * std::sqrt(kSplitKTile * kSplitKTile / c_elements));
  return int(std::clamp<int64_t>(std::min(room, worth), 1, std::max<int64_t>(stages / 4, 1)));
}

// Stream-K (stream_k.cuh): how many of the last waves have tiles that blocks share, and what sharing costs,
// in steps of k. `hand_over` is the cost of storing partial sums. `collect` is the cost of adding the partial
// sums of one block. Tiles are shared if that takes less time in all.
struct Sharing {
  int waves;  // 1: the last wave; 2: the last two
  double hand_over = 0, collect = 0;
};
inline constexpr Sharing kUnshared{1, 1e18};  // no tile is shared
struct StreamKPlan {
  int64_t whole_tiles;    // how many are not shared: the first ones, a multiple of the blocks
  int64_t share, longer;  // steps of a block; the first `longer` blocks have one more
};
inline StreamKPlan plan_stream_k(int64_t tiles, int64_t steps, int64_t blocks, const Sharing& sharing) {
  const int64_t waves = tiles / blocks, left = tiles % blocks;
  const double cost = sharing.hand_over + sharing.collect * double(blocks) / double(left);
  const bool pays = left > 0 && double(left) * double(steps) / double(blocks) + cost <= double(steps);
  const int64_t whole_waves = std::max<int64_t>(waves - sharing.waves + 1, 0);
  const int64_t whole_tiles = pays ? whole_waves * blocks : tiles, shared = (tiles - whole_tiles) * steps;
  return {whole_tiles, shared / blocks, shared % blocks};
}
// The number of blocks of a persistent grid: one for each multiprocessor. If there are several blocks for
// each tile, every tile gets the same number of blocks, unless that leaves many multiprocessors idle. Then no
// block has parts of two tiles, which would delay one of them.
inline int count_blocks(int64_t tiles, int64_t steps, int64_t processors) {
  const int64_t each = processors / tiles;
  const bool even = each >= 2 && each * tiles * 10 >= processors * 9;
  return int(std::min(even ? each * tiles : processors, tiles * steps));
}
inline constexpr int kChunk = 4;  // stages in a step of stream-K with wgmma (chunks.cuh)

// dmma: tiles of 128 or of 64 columns. Each tile is computed by one block, or all blocks share the tiles of
// the last waves. Times are in steps of a wide tile, 1.07 us each on an H200. The time of a wide tile without
// its steps (10 us with the launch) was measured. The times of the fix-up and of narrow tiles follow from
// their bytes.
inline constexpr int kDmmaM = 128, kDmmaWide = 128, kDmmaNarrow = 64, kDmmaDepth = 16;
struct DmmaPlan {
  int columns, blocks;  // columns of a tile, blocks of the grid
  bool shares;
  double tiles, steps;  // tiles that the busiest block begins, and the time of its steps with the fix-up
  double time() const { return steps + tiles * (columns == kDmmaWide ? 4 : 2.5); }
  Sharing sharing() const { return {2, shares ? 0 : 1e18}; }
};
inline DmmaPlan plan_dmma(int64_t batch, int64_t m, int64_t n, int64_t k, int64_t processors,
                          bool may_share = true) {
  constexpr double kClear = 1.5;  // the launch that clears the flags
  const int64_t steps = ceil_div(k, kDmmaDepth);
  DmmaPlan best{};
  const auto consider = [&](const DmmaPlan& plan) {
    if (best.columns == 0 || plan.time() < best.time()) best = plan;
  };
  for (const int columns : {kDmmaWide, kDmmaNarrow}) {
    const bool wide = columns == kDmmaWide;
    const double step = wide ? 1 : 0.53, hand_over = wide ? 2 : 1.5, collect = wide ? 3 : 2;
    const int64_t tiles = batch * ceil_div(m, kDmmaM) * ceil_div(n, columns);
    const int64_t waves = ceil_div(tiles, processors);
    consider({columns, int(std::min(tiles, processors)), false, double(waves), double(waves * steps) * step});
    if (!may_share) continue;
    const auto shared = [&](int64_t blocks) {
      const StreamKPlan plan = plan_stream_k(tiles, steps, blocks, {2});
      if (plan.whole_tiles == tiles) return;
      const int64_t whole = plan.whole_tiles / blocks, share = plan.share + (plan.longer > 0);
      const int64_t before = share >= steps ? 1 : ceil_div(steps, share) - (blocks % tiles == 0);
      const double parts = double(whole) + double(share) / double(steps) + (blocks % tiles != 0);
      consider({columns, int(blocks), true, std::max(parts, 1.0),
                double(whole * steps + share) * step + kClear + hand_over + collect * double(before)});
    };
    const int64_t most = std::min(processors / tiles, steps);
    for (int64_t each = 2; each <= std::min<int64_t>(most, 8); ++each) shared(each * tiles);
    if (processors <= tiles * steps) shared(processors);
  }
  return best;
}

// crt: the tile of C, and the number of moduli for a type and a precision.
inline constexpr int kResidueM = 128, kResidueN = 256, kIeeeModuli = 15, kFloat32Moduli = 8;
inline constexpr int64_t kFloat32CrtTerms = 1 << 14;  // the most values in a part of k
constexpr int crt_moduli(const GemmProblem& p) {
  if (p.type == DType::f32) return kFloat32Moduli;
  // A product of two int64 is below 2^126.02, because signed bytes represent at most 2^63.01. The product of
  // 18 moduli is 2^140.45, twice the sum of 11 000 such products.
  if (p.type == DType::i64) return p.k <= 11000 ? 18 : 19;
  return p.precision < Precision::crt14 ? kIeeeModuli : 14 + int(p.precision) - int(Precision::crt14);
}

// wgmma_specialized shares only the tiles of the last wave, because blocks that work on different k find less
// of each other's operands in L2. The cost is a little above 2, so that whole tiles win a tie.
inline constexpr Sharing kLastWave{1, 2.0001, 1};
inline constexpr int kSpecializedM = 128;

// The number of tiles of C. For a lower triangle it is that of the rectangle that the triangle folds into
// (lower_triangle.cuh).
inline int64_t specialized_tiles(int64_t batch, int64_t rows, int64_t columns, int64_t tile_columns,
                                 bool lower) {
  const int64_t down = ceil_div(rows, kSpecializedM), across = ceil_div(columns, tile_columns);
  if (!lower) return batch * down * across;
  const int64_t square = std::lcm<int64_t>(kSpecializedM, tile_columns);
  const int64_t in_row = square / kSpecializedM, in_column = square / tile_columns;
  const int64_t squares = std::max(ceil_div(down, in_row), ceil_div(across, in_column));
  return batch * squares * (squares + 1) / 2 * in_row * in_column;
}

// The width of tiles with which the busiest block finishes earliest. If the TMA cannot store C (!in_boxes),
// warps store it, and each tile waits for them at its end, even a narrow one. Then narrow tiles gain less.
inline int specialized_columns(int64_t batch, int64_t rows, int64_t columns, int element_bytes, bool in_boxes,
                               int64_t processors, bool lower = false) {
  const bool words = element_bytes == 4;
  // The times of tiles, in units of one of 256 columns.
  const double middle = words ? 0.8 : in_boxes ? 0.755 : 0.78, narrow = words ? 0.7 : in_boxes ? 0.56 : 0.63;
  return fastest({256, 192, 128}, [&](int width) {
    const int64_t tiles = specialized_tiles(batch, rows, columns, width, lower);
    return (width == 256 ? 1 : width == 192 ? middle : narrow) * double(ceil_div(tiles, processors));
  });
}
// The rows of x in a tile of packed_tiles. With 128 each code is converted for half as many products.
inline int packed_columns(int64_t m, int64_t n, int64_t processors) {
  if (m <= 128) return 128;
  return fastest({256, 128}, [&](int columns) {
    const int64_t tiles = ceil_div(m, columns) * ceil_div(n, kSpecializedM);
    return (columns == 256 ? 1 : 0.6) * double(ceil_div(tiles, processors));
  });
}
// The stages of a tile: at least one chunk. The TMA returns zeros beyond k.
inline int specialized_stages(int64_t k, int element_bytes) {
  return int(std::max<int64_t>(ceil_div(k, 128 / element_bytes), kChunk));
}
// packed_mma: the bytes that a stage has for the scales and zeros of a unit.
constexpr int packed_tail_bytes(int code_bits) { return code_bits == 4 ? 1024 : 2048; }

// grouped_wgmma: the most groups, and the rows of a group in a tile.
inline constexpr int kMostGroups = 512;
inline int group_columns(int64_t rows, int64_t groups) {
  const int64_t mean = rows / std::max<int64_t>(groups, 1);
  return mean <= 48 ? 64 : 256;
}
inline int specialized_blocks(int64_t tiles, int64_t chunks, int64_t processors) {
  return int(std::min<int64_t>(processors, tiles * chunks));
}

// skinny: tiles (rows, 64), with rows of the large operand. If blocks have whole tiles, some multiprocessors
// are idle at the end; idle_bytes is how many bytes of the large operand could be read in that time. The loss
// is smaller than the share of the idle multiprocessors: a Hopper multiprocessor has enough bytes in flight
// to read 1.5 times its share of the bandwidth when others are idle. Sharing tiles costs a second kernel. So
// whole tiles pay if idle_bytes is less than the device reads in the time of that kernel.
struct SkinnyTiles {
  int64_t m, n, all, steps;  // tiles along each side and in all, stages of a tile
  double idle_bytes = 0;
  bool whole = false;
  int64_t blocks = 0;
};
inline SkinnyTiles skinny_tiles(int rows, int64_t batch, int64_t large, int64_t skinny, int64_t k,
                                int element_bytes, bool by_units, const Gpu& gpu) {
  constexpr int kColumns = 64;
  const int64_t processors = gpu.multiprocessors;
  const int64_t m = ceil_div(large, rows), n = ceil_div(skinny, kColumns);
  SkinnyTiles t{m, n, batch * m * n, ceil_div(k, 128 / element_bytes)};
  const double alone = gpu.wgmma && !by_units ? 1.5 : 1.0;
  const int64_t busy = t.all - (ceil_div(t.all, processors) - 1) * processors;  // in the last wave
  t.idle_bytes = std::max(double(processors) / alone - double(busy), 0.0) * double(k) * rows * element_bytes;
  t.whole = t.idle_bytes < (gpu.wgmma ? 10e6 : gpu.bandwidth * 2e-6);
  t.blocks = std::min<int64_t>(processors, t.whole ? t.all : t.all * t.steps);
  return t;
}
// Narrow tiles have 64 rows, and read more of the skinny operand. They are taken where they save enough idle
// time, and are compiled only for these layouts.
constexpr bool takes_narrow_skinny(bool large_along_k, bool skinny_along_k, int element_bytes) {
  return skinny_along_k && (large_along_k || element_bytes == 2);
}
inline bool narrow_skinny_wins(const SkinnyTiles& narrow, const SkinnyTiles& wide) {
  return narrow.whole && narrow.idle_bytes + 2e6 < wide.idle_bytes;
}

// Products of planes (parts/planes). A long k is computed in segments, with a launch for each. Rounded sums
// need segments because the rounding error of each promotion is proportional to the sum so far: without
// segments the error exceeds that of cuBLAS SGEMM for very long k. Exact sums need them because they would
// overflow.
struct PlaneScheme {
  bool promotes;
  int longest, segment;  // in stages: the longest k that needs no segments; the longest segment
  int wide;              // columns of wide tiles
  double narrow_time;    // measured time of a narrow tile, in units of a wide tile's
};
inline constexpr int kPlaneStage = 32, kPlaneM = 128, kWidePlanes = 192, kNarrowPlanes = 128;
inline constexpr int kAnyLength = std::numeric_limits<int>::max();
inline constexpr PlaneScheme kBf16x6{true, 512, 256, kWidePlanes, 0.71},
    kThreePlanes{true, 512, 256, kWidePlanes, 0.77},
    kInt8x10{false, kAnyLength, kAnyLength, kWidePlanes, 0.67}, kInt16x4{false, 1024, 1024, kNarrowPlanes, 1};
inline constexpr double kHandOver = 3;  // the cost of stream-K's fix-up of a shared tile, in chunks

// The number of segments of `stages` stages.
inline int plane_segments(int64_t stages, const PlaneScheme& scheme) {
  return stages > scheme.longest ? int(ceil_div(stages, scheme.segment)) : 1;
}
// The chunks of a tile, which stream-K shares. There is at least one, and the last one has up to 7 stages.
inline int plane_chunks(int64_t stages) { return int(std::max<int64_t>(stages / kChunk, 1)); }

// Whether the busiest block is predicted to end earlier with narrow tiles. Times are those of the first
// segment, in units of a chunk of a wide tile. If `shares`, blocks share the tiles of the last waves.
inline bool narrow_planes_win(int64_t batch, int64_t m, int64_t n, int64_t k, const PlaneScheme& scheme,
                              int64_t processors, bool shares = true) {
  if (shares && scheme.wide == kNarrowPlanes) return true;
  const int64_t stages = ceil_div(k, kPlaneStage);
  const int chunks = shares ? plane_chunks(ceil_div(stages, plane_segments(stages, scheme))) : 1;
  return kNarrowPlanes == fastest({kWidePlanes, kNarrowPlanes}, [&](int tile_n) {
           const int64_t tiles = batch * ceil_div(m, kPlaneM) * ceil_div(n, tile_n);
           const int64_t blocks = shares ? count_blocks(tiles, chunks, processors) : processors;
           const StreamKPlan w =
               plan_stream_k(tiles, chunks, blocks, shares ? Sharing{2, kHandOver} : kUnshared);
           const double whole = double(ceil_div(w.whole_tiles, blocks)) * chunks;
           const double shared = w.whole_tiles < tiles ? double(w.share + (w.longer > 0)) + kHandOver : 0;
           return (whole + shared) * (tile_n == kNarrowPlanes ? scheme.narrow_time : 1);
         });
}

}  // namespace fastgemm::plans
