// Rows of levels 2 to 5, and narrow: ordinary multiply-adds.
#include <bit>

#include "cuda/gemm/predict/tiles.h"

namespace fastgemm::predict {
namespace {

Counts simple(const GemmProblem& p, const Gpu& gpu, int64_t tile, int64_t depth, int64_t resident) {
  return count_tiles(facts(p), {tile, tile, depth, resident}, gpu, rate(gpu, Unit::fma, p.type));
}

Counts small(const GemmProblem& p, const Gpu& gpu, int64_t tile) {
  const int64_t depth = p.type == DType::i8 ? 64 : 32, resident = tile == 32             ? 16
                                                                  : p.type == DType::f64 ? 3
                                                                                         : 5;
  const int64_t tiles = facts(p).tiles(tile, tile);
  const int splits = p.k < 8 * depth ? 1 : choose_splits(tiles, p.k, 2 * depth, gpu.multiprocessors);
  return count_tiles(facts(p), {tile, tile, depth, resident, splits}, gpu, rate(gpu, Unit::fma, p.type));
}

}  // namespace

Counts count_tiled(const GemmProblem& p, const Gpu& gpu) { return simple(p, gpu, 32, 32, 2); }
Counts count_thread_tile(const GemmProblem& p, const Gpu& gpu) { return simple(p, gpu, 64, 32, 3); }
Counts count_vectorized(const GemmProblem& p, const Gpu& gpu) {
  return simple(p, gpu, 128, 16, p.type == DType::f64 ? 1 : 2);
}
Counts count_small(const GemmProblem& p, const Gpu& gpu) { return small(p, gpu, 64); }
Counts count_batched(const GemmProblem& p, const Gpu& gpu) { return small(p, gpu, 32); }

Counts count_cp_async(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int64_t m = p.type == DType::f64 ? 64 : 128;
  const int64_t tiles = f.tiles(m, 128);
  const int splits = choose_splits(tiles, p.k, 128, gpu.multiprocessors);
  Counts c = count_tiles(f, {m, 128, 16, 2, splits}, gpu, rate(gpu, Unit::fma, p.type));
  const auto copied = [&](const Operand& o) { return f.size < 4 || !o.aligned() || o.along_k; };
  add_copies(c, f, gpu, copied(f.a), copied(f.b));
  return c;
}
Counts count_warp_specialized(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  Counts c = count_tiles(f, {p.type == DType::f64 ? 64 : 128, 256, 16, 1, 1, true}, gpu,
                         rate(gpu, Unit::fma, p.type));
  const auto copied = [&](const Operand& o) { return f.size < 4 || !o.aligned() || o.along_k; };
  add_copies(c, f, gpu, copied(f.a), copied(f.b));
  return c;
}

Counts count_narrow(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p).long_side_first();  // a is the wide side
  const int64_t per_16_bytes = std::min<int64_t>(16 / f.size, 8);
  const bool along_k = f.a.takes_loads_of(per_16_bytes, true) && f.b.takes_loads_of(per_16_bytes, true);
  const bool along_rows = !along_k && f.a.takes_loads_of(per_16_bytes, false);
  Counts best{};
  double best_time = 1e30;
  const double cycle = 1 / gpu.clock;
  for (const int64_t narrow : {1, 4, 8}) {
    if ((narrow > 1 && f.n == 1) || (narrow > 4 && f.n <= 4)) break;
    const bool vector_rows = along_rows;
    const int64_t per_load =
        along_k || along_rows ? std::min<int64_t>(16 / f.size, vector_rows && narrow > 1 ? 4 : 8) : 1;
    const int64_t per_k = along_k ? per_load : 1;
    const int64_t row_loads = vector_rows || narrow == 1 ? 1 : narrow > 4 && f.size != 4 ? 2 : 4;
    const int64_t rows = vector_rows ? per_load : row_loads;
    const int64_t unroll = narrow == 1   ? (along_k ? 4 : 8)
                           : along_k     ? (narrow > 4 && f.size == 8 ? 2 : 1)
                           : !along_rows ? (narrow > 4 ? 2 : 4)
                                         : (narrow * f.size > 32 ? 2 : 4);
    const int64_t resident = narrow == 1 ? 3 : 2;
    const auto power = [](int64_t x) { return int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(x, 1)))); };
    const bool lines_k = along_k || (!along_rows && f.a.along_k);
    const int64_t row_count = ceil_div(f.m, rows), step_k = per_k * unroll, line = per_load > 1 ? 8 : 32;
    const int64_t most_k = std::min<int64_t>(power(ceil_div(f.k, step_k)), 256),
                  least_k = std::min<int64_t>(power(ceil_div(f.k, 512)), 256);
    int64_t most = std::min<int64_t>({power(row_count), 64, 256 / least_k});
    if (lines_k) most = std::min(most, 256 / std::min(most_k, line));
    int64_t least = std::min(most, 256 / most_k);
    if (!lines_k) least = std::max(least, std::min(most, line));
    for (int64_t threads = least; threads <= most; threads *= 2) {
      const int64_t step = 256 / threads * step_k, steps = std::max<int64_t>(ceil_div(f.k, step), 1);
      const int64_t tiles = f.batch * ceil_div(row_count, threads) * ceil_div(f.n, narrow);
      const int64_t room =
          std::min<int64_t>({steps, 64, std::max<int64_t>(resident * gpu.multiprocessors / tiles, 1)});
      for (const int64_t wanted : {int64_t{1}, room}) {
        const int64_t part_steps = ceil_div(steps, wanted), splits = ceil_div(steps, part_steps),
                      blocks = tiles * splits;
        const double waves = double(ceil_div(blocks, resident * gpu.multiprocessors));
        const double bytes = double(blocks) * double(threads * rows + narrow) *
                             double(std::min(part_steps * step, f.k)) * f.size;
        const double sums = double(ceil_div(threads, 32) * ceil_div(rows * narrow, 8));
        const double stream = bytes / (20 * double(std::min<int64_t>(blocks, gpu.multiprocessors)));
        const double time = std::max(waves * (1400 + double(part_steps) * 1100 + 240 * sums), stream) +
                            (splits > 1 ? 3600 : 0);
        if (time >= best_time) continue;
        best_time = time;
        best = {};
        best.launch = cycle;
        best.more_launches = splits > 1 ? cycle : 0;
        best.code = double(narrow * rows * unroll * (along_k || along_rows ? 1 : 2)) * cycle;
        best.waves = waves * cycle;
        best.steps = waves * double(part_steps) * cycle;
        best.busiest = waves * sums * cycle;
        best.all = double(f.batch) * double(f.m) * double(f.n) * double(f.k) /
                   (rate(gpu, Unit::fma, p.type) * gpu.multiprocessors) * cycle;
        best.tiles_busiest =
            double(ceil_div(blocks, gpu.multiprocessors)) * bytes / double(blocks) / 64 * cycle;
        best.tiles = bytes / (32.0 * gpu.multiprocessors) * cycle;
        best.read = (f.a.bytes + f.b.bytes) / gpu.bandwidth;
        best.written = (f.result_bytes + f.c_bytes) / gpu.bandwidth;
        best.slower = time * cycle;
        best.unaligned = along_k || along_rows ? 0 : best.tiles_busiest;
        // Neighbouring threads that run along k read a sector each of a narrow side that does not.
        const double sectors =
            lines_k && !f.b.along_k ? 32.0 / f.size * double(narrow) / double(threads * rows + narrow) : 0;
        best.across = (lines_k ? sectors : 1) * best.tiles_busiest;
        best.odd_result = f.out_aligned() ? 0 : best.written;
        best.partial = splits > 1 ? 2 * f.result_bytes * double(splits) / gpu.bandwidth : 0;
      }
    }
  }
  return best;
}

}  // namespace fastgemm::predict
