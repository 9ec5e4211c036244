// Rows of level 6: tensor cores.
#include <cmath>

#include "cuda/gemm/predict/tiles.h"

namespace fastgemm::predict {
namespace {

Counts planes(const GemmProblem& p, const Gpu& gpu, double products, int bytes, DType unit,
              double narrow_time, int wide) {
  const Facts f = facts(p);
  const double r = rate(gpu, Unit::tensor, unit) / products;
  const auto of = [&](int64_t n) {
    Facts g = f;
    g.size = bytes;
    return count_tiles(g, {128, n, 32, 1, 1, true}, gpu, r);
  };
  // Plan::predicted_time: which of wide and narrow tiles; without wgmma all are narrow.
  const auto time = [&](int64_t n, double tile_time) {
    const int64_t tiles = f.tiles(128, n);
    const double all = double(tiles) / gpu.multiprocessors;
    return std::max(all, 1.0) * tile_time;
  };
  Counts c = !gpu.wgmma || time(128, narrow_time) < time(wide, 1) ? of(128) : of(wide);
  c.more_launches = 1 / gpu.clock;
  c.copied = (f.a.bytes + f.b.bytes) * (1 + double(bytes) / f.size) / gpu.bandwidth;
  c.across = ((f.a.along_k ? 0 : f.a.bytes) + (f.b.along_k ? 0 : f.b.bytes)) / gpu.bandwidth;
  c.unaligned = ((f.a.aligned() ? 0 : f.a.bytes) + (f.b.aligned() ? 0 : f.b.bytes)) / gpu.bandwidth;
  c.partial = p.k > 512 * 32 ? f.result_bytes * double(ceil_div(p.k, 256 * 32)) * 2 / gpu.bandwidth : 0;
  return c;
}

}  // namespace

Counts count_direct(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int packed = f.size >= 4 ? 1 : 4 / f.size;
  const int64_t shallow = 4 * packed * 2, depth = f.k <= shallow ? shallow : 2 * shallow;
  const int most_warps = depth == shallow ? 4 : f.size == 1 ? 8 : 12;
  const int64_t tiles = f.batch * ceil_div(f.m, 32) * ceil_div(f.n, 32),
                steps = std::max<int64_t>(ceil_div(f.k, depth), 1);
  const int64_t blocks = gpu.multiprocessors, room = 3 * blocks, rounds = ceil_div(steps, 4);
  int64_t together = 4, splits = 1;
  if (tiles > room)
    together = steps > 1 && tiles * 2 <= 12 * blocks ? 2 : 1;
  else if (rounds >= 5 && tiles * 2 <= room)
    splits = std::min(room / tiles, rounds / 2);
  else if (rounds > 1 && tiles <= blocks)
    together = std::min<int64_t>(most_warps, 4 * rounds);
  const DType unit = p.type == DType::f32 ? DType::f64 : p.type;
  Counts c = count_tiles(f, {32, 32, depth, 1, splits}, gpu, rate(gpu, Unit::tensor, unit));
  const double cycle = 1 / gpu.clock;
  const double warps = double(tiles * splits * together), waves = std::ceil(warps / double(12 * blocks));
  const double each = double(ceil_div(ceil_div(steps, splits), together));
  c.waves = waves * cycle, c.steps = waves * each * cycle;
  // Loads of single elements, which do not fill a word.
  const auto gathers = [&](const Operand& o) { return !o.takes_loads_of(packed, true); };
  const double loads = c.tiles_busiest / 2;
  c.unaligned = packed > 1 ? loads * (gathers(f.a) + gathers(f.b)) : 0;
  c.across = loads * ((f.a.along_k ? 0 : 1) + (f.b.along_k ? 0 : 1));
  return c;
}

Counts count_small_tile(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int64_t tiles = f.batch * ceil_div(f.m, 64) * ceil_div(f.n, 64), depth = 128 / f.size,
                stages = ceil_div(f.k, depth);
  const int64_t splits = stages < 16 ? 1 : std::clamp<int64_t>(gpu.multiprocessors / tiles, 1, stages / 4);
  const int64_t resident = gpu.wgmma || gpu.shared_bytes >= 192 << 10 ? 3 : gpu.shared_bytes >> 16;
  Counts c = count_tiles(f, {64, 64, depth, resident, splits}, gpu, rate(gpu, Unit::tensor, p.type));
  if (f.size == 1)
    for (const Operand& o : {f.a, f.b})
      if (!o.along_k) add_transposed(c, o, gpu);
  return c;
}

Counts count_skinny(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p).long_side_first();  // a is the large side
  const bool units = !f.a.aligned();
  const int64_t depth = 128 / f.size;
  const auto idle = [&](int64_t m) {
    const int64_t tiles = f.batch * ceil_div(f.m, m) * ceil_div(f.n, 64);
    const int64_t places = ceil_div(tiles, gpu.multiprocessors) * gpu.multiprocessors;
    return double(places - tiles) * double(f.k) * double(m) * f.size;
  };
  // By mma.sync all tiles have 128 rows, and no more columns than they need (fast/skinny_portable.cuh).
  const double worth = gpu.wgmma ? 10e6 : 2e-6 * gpu.bandwidth;
  const bool narrow = gpu.wgmma && idle(64) < 10e6 && idle(64) + 2e6 < idle(128) && !units && f.b.along_k &&
                      (f.a.along_k || f.size == 2);
  const int64_t m = narrow ? 64 : 128;
  const bool shares = idle(m) >= worth;
  const int64_t columns = gpu.wgmma || f.n > 32 ? 64 : f.n > 16 ? 32 : 16;
  Counts c = count_tiles(f, {m, columns, depth, 1, 1, shares}, gpu, rate(gpu, Unit::tensor, p.type));
  if (shares) {
    c.more_launches = 1 / gpu.clock;
    c.partial = 2.0 * gpu.multiprocessors * 2 * 128 * double(std::min<int64_t>(f.n, 64)) * 4 / gpu.bandwidth;
  }
  const bool copied = (!f.b.along_k && (f.size != 2 || (!units && f.n < 64))) || (!units && !f.b.aligned());
  if (copied) add_transposed(c, f.b, gpu);
  return c;
}

Counts count_split_k(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int64_t tiles = f.batch * ceil_div(f.m, 128) * ceil_div(f.n, 128), depth = 128 / f.size,
                stages = ceil_div(f.k, depth);
  const int64_t room = gpu.multiprocessors / tiles,
                worth = int64_t(48 * std::sqrt(128.0 * 128 / (double(f.batch) * double(f.m) * double(f.n))));
  const int64_t splits = std::clamp<int64_t>(std::min(room, worth), 1, std::max<int64_t>(stages / 4, 1));
  Counts c = count_tiles(f, {128, 128, depth, 1, splits}, gpu, rate(gpu, Unit::tensor, p.type));
  const double sums = 2.0 * f.result_bytes / f.out_size * 4 * double(splits) / gpu.bandwidth;
  c.more_launches = 1 / gpu.clock, c.partial = sums;
  gpu.wgmma ? add_boxes(c, f, gpu, false) : add_rows(c, f, gpu, f.size == 2);
  return c;
}

Counts count_wgmma_specialized(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int64_t depth = 128 / f.size;
  const bool in_boxes = f.out_aligned();
  const auto waves = [&](int64_t n) {
    return double(ceil_div(f.batch * ceil_div(f.m, 128) * ceil_div(f.n, n), gpu.multiprocessors));
  };
  const double narrow_time = f.size == 4 ? 0.7 : in_boxes ? 0.56 : 0.63;
  const int64_t n = narrow_time * waves(128) < waves(256) ? 128 : 256;
  Launch l{128, n, depth, 1};
  const int64_t tiles = f.batch * ceil_div(f.m, 128) * ceil_div(f.n, n),
                steps = std::max<int64_t>(ceil_div(f.k, depth), 1);
  const int64_t left = tiles % gpu.multiprocessors;
  const double shared = double(left) * double(steps) / 4 / gpu.multiprocessors + 2 +
                        double(gpu.multiprocessors) / double(std::max<int64_t>(left, 1));
  const bool shares = left > 0 && shared <= double(steps) / 4;
  Counts c = count_tiles(f, l, gpu, rate(gpu, Unit::tensor, p.type));
  if (shares) {
    const Launch even{128, n, depth, 1, 1, true};
    c = count_tiles(f, even, gpu, rate(gpu, Unit::tensor, p.type));
    c.partial =
        2.0 * std::min<double>(double(left) * 2, gpu.multiprocessors) * 128 * double(n) * 4 / gpu.bandwidth;
    c.steps = (double(tiles / gpu.multiprocessors) * double(steps) + 4 * shared) / gpu.clock;
  }
  const double launches = c.more_launches;
  add_boxes(c, f, gpu, true);
  if (shares && c.more_launches == launches) c.more_launches += 1 / gpu.clock;
  return c;
}

Counts count_bf16x6(const GemmProblem& p, const Gpu& gpu) {
  return planes(p, gpu, 6, 6, DType::bf16, 0.71, 192);
}
Counts count_three_planes(const GemmProblem& p, const Gpu& gpu) {
  return planes(p, gpu, 3, 4, DType::bf16, 0.77, 192);
}
Counts count_int8x10(const GemmProblem& p, const Gpu& gpu) {
  return planes(p, gpu, 10, 6, DType::i8, 0.67, 192);
}

Counts count_bf16x6_fused(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p).long_side_first();
  struct Ways {
    int64_t count;
    double time;
  };
  const int64_t steps = std::max<int64_t>(ceil_div(f.k, 32), 1);
  const auto ways = [&](int64_t rows, int64_t columns, int64_t resident) {
    const double stage = rows == 256 ? 0.92 : 1, fill = !gpu.wgmma ? 1.5 : rows == 256 ? 3.3 : 3;
    const int64_t tiles = f.batch * ceil_div(f.m, rows) * ceil_div(f.n, columns),
                  slots = resident * gpu.multiprocessors;
    const auto time = [&](int64_t w) {
      return double(ceil_div(tiles * w, slots)) * (stage * double(ceil_div(steps, w)) + fill + (w > 1)) +
             (w > 1 ? fill : 0);
    };
    // Of the ways that give parts of the same length the fewest take least time.
    Ways best{1, time(1)};
    for (int64_t w = 2; w * 2 <= steps && (w - 1) * tiles < 8 * slots;) {
      if (time(w) < best.time) best = {w, time(w)};
      const int64_t part = ceil_div(steps, w);
      w = part == 1 ? steps + 1 : ceil_div(steps, part - 1);
    }
    return best;
  };
  // Blocks of so many columns that a multiprocessor has room for.
  const auto resident_of = [&](int64_t columns) {
    const int64_t most = columns == 16 ? 3 : 2, kib = columns == 16 ? 47 : columns == 32 ? 57 : 78;
    return gpu.wgmma ? most : std::clamp<int64_t>((gpu.shared_bytes >> 10) / kib, 1, most);
  };
  int64_t rows = 128, columns = f.n <= 16 ? 16 : f.n <= 32 ? 32 : 64, resident = resident_of(columns);
  Ways chosen = ways(rows, columns, resident);
  if (columns == 64) {
    const bool room = f.batch * ceil_div(f.m, 128) * ceil_div(f.n, 64) <= gpu.multiprocessors;
    const Ways tall = ways(256, 64, 1);
    if (room && chosen.count == 1)
      columns = 32, resident = resident_of(32), chosen = ways(128, 32, resident);
    else if (gpu.wgmma && tall.time < chosen.time)
      rows = 256, resident = 1, chosen = tall;
  }
  Counts c = count_tiles(f, {rows, columns, 32, resident, chosen.count}, gpu,
                         rate(gpu, Unit::tensor, DType::bf16) / 6);
  c.slower = chosen.time * 1e3 / gpu.clock;
  return c;
}

Counts count_mma_sync(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  Counts c = count_tiles(f, {128, 256, 128 / f.size, 1, 1, true}, gpu, rate(gpu, Unit::tensor, p.type));
  add_rows(c, f, gpu, f.size == 2);
  return c;
}
Counts count_dmma(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  Counts c = count_tiles(f, {128, 128, 16, 1, 1, true}, gpu, rate(gpu, Unit::tensor, p.type));
  add_rows(c, f, gpu, true);
  return c;
}

}  // namespace fastgemm::predict
