// The work of each row. First what kernels with tiles of C have in common: the tiles of a multiprocessor, the
// bytes that they load, and the copies made first. Then the rows of levels 2 to 5 and narrow, which use the
// ordinary units, those of level 6, which use tensor cores, and the library.
#include "cuda/gemm/predict/counts.h"
#include "cuda/gemm/predict/facts.h"
#include "cuda/gemm/predict/fused_plan.h"
#include "cuda/gemm/predict/narrow_plan.h"
#include "cuda/gemm/predict/one_wave_plan.h"

namespace fastgemm::predict {
namespace {

// A launch of tiles (m, n). A multiprocessor has `resident` of them at a time, a step has `depth` values of
// k, and `splits` blocks share the k of a tile.
struct Launch {
  int64_t m, n, depth, resident, splits = 1;
  bool shares = false;  // persistent blocks share all work evenly
};
Counts count_tiles(const Facts& f, const Launch& l, const Gpu& gpu, double rate) {
  const double sms = gpu.multiprocessors, cycle = 1 / gpu.clock;
  const int64_t tiles = f.tiles(l.m, l.n), steps = std::max<int64_t>(ceil_div(f.k, l.depth), 1);
  const int64_t part_steps = ceil_div(steps, l.splits), splits = ceil_div(steps, part_steps);
  const int64_t blocks = tiles * splits, slots = gpu.multiprocessors * l.resident;
  const double waves = l.shares ? std::max(1.0, double(tiles) / sms) : double(ceil_div(blocks, slots));
  // The blocks of the busiest multiprocessor.
  const double busiest = l.shares ? double(tiles) * double(steps) / sms / double(part_steps)
                                  : double(ceil_div(blocks, gpu.multiprocessors));
  const double values = busiest * double(part_steps * l.depth);  // of k
  const double line = values * f.size / 64 * cycle;              // a row or a column of its tiles
  const double sums = double(f.batch) * double(f.m) * double(f.n) * std::max(f.out_size, 4);
  Counts c{};
  c.launch = cycle;
  c.more_launches = splits > 1 ? cycle : 0;
  c.waves = waves * cycle;
  c.steps = waves * double(part_steps) * cycle;
  c.busiest = values * double(l.m * l.n) / rate * cycle;
  c.tiles = line * double(l.m + l.n);
  c.read = (f.a.bytes + f.b.bytes) / gpu.bandwidth;
  c.written = (f.result_bytes + f.c_bytes) / gpu.bandwidth;
  c.least = c.read + c.written;
  c.slower = std::max(c.busiest, c.least);
  c.passes = splits > 1 ? 2 * sums * double(splits) / gpu.bandwidth : 0;
  c.unaligned = line * double((f.a.aligned() ? 0 : l.m) + (f.b.aligned() ? 0 : l.n));
  c.across = line * double((f.a.along_k ? 0 : l.m) + (f.b.along_k ? 0 : l.n));
  c.odd_result = f.out_aligned() ? 0 : c.written;
  return c;
}

// How an operand is copied before the product: in the layout that it has (parts/panels.cuh, row_copies.cuh;
// one launch for both operands), or so that it lies along k (copied_operand.cuh).
enum class Copy { none, rows, transposed };
void add_copies(Counts& c, const Facts& f, const Gpu& gpu, Copy a, Copy b) {
  const auto add = [&](const Operand& o, Copy copy) {
    if (copy != Copy::none) c.passes += 2 * o.bytes / gpu.bandwidth;
    if (copy != Copy::transposed) return;
    c.more_launches += 1 / gpu.clock;
    // The transpose has tiles of 256 bytes. A tile at an edge of the matrix checks each of its 16-byte
    // pieces. Narrow matrices have no tiles.
    const int64_t tile = 256 / o.size;
    const bool whole = o.side % tile == 0 && o.k % tile == 0 && o.aligned();
    if (!whole && std::min(o.side, o.k) * o.size > 64) c.edges += 1 / gpu.clock;
  };
  add(f.a, a), add(f.b, b);
  if (a == Copy::rows || b == Copy::rows) c.more_launches += 1 / gpu.clock;
}

// Whether struct BoxOperands exchanges A and B (C^T = B^T A^T). If A is multiplied from registers, an operand
// whose side runs along rows needs no copy; only one operand can be A.
bool swaps_boxes(const Facts& f, bool registers) {
  const bool keeps_b = f.b.has_side_in_rows() && !(f.a.has_side_in_rows() && f.m >= f.n);
  return registers && f.size != 2 && keeps_b;
}
// The copies that struct BoxOperands makes.
void add_boxes(Counts& c, const Facts& f, const Gpu& gpu, bool registers) {
  const auto copy = [&](const Operand& o, bool keeps) {
    if (o.has_side_in_rows() && f.size != 2 && !keeps) return Copy::transposed;
    const bool is_large = f.size <= 2 && o.alignment < 32 && std::min({f.m, f.n, f.k}) >= 3072;
    return o.aligned() && !is_large ? Copy::none : Copy::rows;
  };
  const bool swaps = swaps_boxes(f, registers);
  const Copy a = copy(f.a, registers && !swaps), b = copy(f.b, registers && swaps);
  add_copies(c, f, gpu, a, b);
  // A row that begins in the middle of a sector is loaded at half the rate.
  const auto splits = [](const Operand& o, Copy copy) { return copy == Copy::none && o.splits_sectors(); };
  c.unaligned = c.tiles / 2 * (splits(f.a, a) + splits(f.b, b));
}
// Rows that begin in the middle of sectors take a tenth of the time that rows at any address add.
void add_split_sectors(Counts& c, const Facts& f) {
  for (const Operand* o : {&f.a, &f.b})
    if (o->splits_sectors()) c.unaligned += c.tiles / 20;
}
// The copies that rows_operands() makes.
void add_rows(Counts& c, const Facts& f, const Gpu& gpu, bool takes_any) {
  const auto copy = [&](const Operand& o) {
    const bool as_it_lies = takes_any || o.along_k;
    if (o.aligned() && as_it_lies) return Copy::none;
    const bool is_short = o.size == 8 || (o.along_k ? o.k : o.side) * o.size < 128;
    return !as_it_lies || is_short ? Copy::transposed : Copy::rows;
  };
  add_copies(c, f, gpu, copy(f.a), copy(f.b));
}

// Whether sums take 8 bytes.
bool is_wide(DType type) { return element_size(sum_type(type)) == 8; }

Counts ordinary(const GemmProblem& p, const Facts& f, const Launch& launch, const Gpu& gpu) {
  return count_tiles(f, launch, gpu, rate(gpu, Unit::fma, p.type));
}
Counts tensor(const GemmProblem& p, const Facts& f, const Launch& launch, const Gpu& gpu) {
  return count_tiles(f, launch, gpu, rate(gpu, Unit::tensor, p.type));
}

Counts small(const GemmProblem& p, const Gpu& gpu, int64_t tile) {
  const Facts f = facts(p);
  const int64_t resident = tile == 32 ? 16 : is_wide(p.type) ? 3 : 5;
  const int splits = plans::small_splits(f.tiles(tile, tile), f.k, f.size, gpu.multiprocessors);
  return ordinary(p, f, {tile, tile, plans::small_depth(f.size), resident, splits}, gpu);
}

// The rows that multiply packed panels: operands are copied unless their rows begin at units of 16 bytes and
// run along m or n. A word of a panel has four bytes of k.
Counts panels(const GemmProblem& p, const Gpu& gpu, Launch launch) {
  const Facts f = facts(p);
  if (p.type == DType::i8) launch.depth *= 4;
  if (!launch.shares)
    launch.splits =
        plans::cp_async_splits(f.tiles(launch.m, launch.n), ceil_div(f.k, launch.depth), gpu.multiprocessors);
  Counts c = ordinary(p, f, launch, gpu);
  const auto copy = [&](const Operand& o) {
    return f.size < 4 || !o.aligned() || o.along_k ? Copy::rows : Copy::none;
  };
  add_copies(c, f, gpu, copy(f.a), copy(f.b));
  return c;
}

Counts planes(const GemmProblem& p, const Gpu& gpu, double products, int bytes, DType unit,
              const plans::PlaneScheme& scheme) {
  const Facts f = facts(p);
  // Without wgmma all tiles are narrow.
  const bool narrow =
      !gpu.wgmma || plans::narrow_planes_win(f.batch, f.m, f.n, f.k, scheme, gpu.multiprocessors);
  const int64_t columns = narrow ? plans::kNarrowPlanes : plans::kWidePlanes;
  Facts cut = f;
  cut.size = bytes;
  Counts c = count_tiles(cut, {plans::kPlaneM, columns, plans::kPlaneStage, 1, 1, true}, gpu,
                         rate(gpu, Unit::tensor, unit) / products);
  c.more_launches = 1 / gpu.clock;
  const int segments = plans::plane_segments(ceil_div(f.k, plans::kPlaneStage), scheme);
  const double sums = segments > 1 ? f.result_bytes * segments * 2 : 0;
  c.passes = (sums + (f.a.bytes + f.b.bytes) * (1 + double(bytes) / f.size)) / gpu.bandwidth;
  return c;
}

}  // namespace

Counts count_tiled(const GemmProblem& p, const Gpu& gpu) {
  return ordinary(p, facts(p), {32, 32, 32, 2}, gpu);
}
Counts count_thread_tile(const GemmProblem& p, const Gpu& gpu) {
  return ordinary(p, facts(p), {64, 64, 32, 3}, gpu);
}
Counts count_vectorized(const GemmProblem& p, const Gpu& gpu) {
  return ordinary(p, facts(p), {128, 128, 16, is_wide(p.type) ? 1 : 2}, gpu);
}
Counts count_small(const GemmProblem& p, const Gpu& gpu) { return small(p, gpu, 64); }
Counts count_batched(const GemmProblem& p, const Gpu& gpu) { return small(p, gpu, 32); }
Counts count_cp_async(const GemmProblem& p, const Gpu& gpu) {
  return panels(p, gpu, {is_wide(p.type) ? 64 : 128, 128, plans::kCpAsyncDepth, 2});
}
Counts count_warp_specialized(const GemmProblem& p, const Gpu& gpu) {
  return panels(p, gpu, {p.type == DType::f64 ? 64 : 128, 256, 16, 1, 1, true});
}

Counts count_narrow(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p).long_side_first();  // so a is the wide side
  const int load = plans::narrow_load(f.size);
  const bool along_k = f.a.takes_loads_of(load, true) && f.b.takes_loads_of(load, true);
  const bool by_elements = !along_k && !f.a.takes_loads_of(load, false);
  const auto reads = along_k       ? plans::Reads::along_k
                     : by_elements ? plans::Reads::elements
                                   : plans::Reads::along_rows;
  const plans::NarrowShape shape{f.batch, f.m, f.n, f.k, f.a.along_k};
  const auto [thread, plan] = plans::choose_narrow(reads, f.size, shape, gpu.multiprocessors);
  const int rows = plan.threads_rows * thread.rows();
  const int64_t depth = plans::kNarrowThreads / plan.threads_rows * thread.step_k();
  Counts c = ordinary(p, f, {rows, thread.narrow, depth, thread.resident(), plan.splits}, gpu);
  c.code = double(thread.narrow * thread.rows() * thread.unroll() * (by_elements ? 2 : 1)) / gpu.clock;
  c.steps += 2 * c.waves * double(plan.sums);  // the sums that each warp adds, one after another
  c.tiles *= double(std::min<int64_t>(plan.part, f.k)) / plan.part;
  c.unaligned = by_elements ? c.tiles : 0;
  // If neighbouring threads are neighbours along k but the narrow side does not lie along k, each thread
  // reads a sector of its own from that side.
  const bool lines_k = shape.lines_along_k(reads);
  const double sectors = lines_k && !f.b.along_k ? 32.0 / f.size * thread.narrow / (rows + thread.narrow) : 0;
  c.across = (lines_k ? sectors : 1) * c.tiles;
  return c;
}

Counts count_direct(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int packed = plans::direct_packed(f.size), values = plans::direct_values(f.size, f.k);
  const int64_t depth = plans::direct_depth(f.size, values), steps = ceil_div(f.k, depth);
  const auto [together, splits] = plans::plan_direct(
      f.tiles(32, 32), steps, plans::direct_warps(f.size, values), f.batch, gpu.multiprocessors);
  const DType unit = p.type == DType::f32 ? DType::f64 : p.type;
  Counts c = count_tiles(f, {32, 32, depth, 1, splits}, gpu, rate(gpu, Unit::tensor, unit));
  const int64_t warps = f.tiles(32, 32) * splits * together;
  c.waves = double(ceil_div(warps, 12 * gpu.multiprocessors)) / gpu.clock;
  // The warps of a tile add their sums one by one.
  c.steps = c.waves * (double(ceil_div(ceil_div(steps, splits), together)) + 0.5 * double(together - 1));
  // These operands are loaded element by element, which does not fill a word.
  const auto gathers = [&](const Operand& o) { return !o.takes_loads_of(packed, true); };
  const double loads = c.tiles / 2;
  c.unaligned = packed > 1 ? loads * (gathers(f.a) + gathers(f.b)) : 0;
  c.across = loads * (!f.a.along_k + !f.b.along_k);
  return c;
}

Counts count_outer(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int values = plans::direct_values(f.size, f.k), blocks = plans::outer_blocks(f.out_size, values);
  // Neighbouring tiles share a sector if rows of C begin inside sectors.
  const int64_t overlap = f.out_alignment >= 32 ? 0 : 32 / f.out_size;
  const int64_t columns = plans::outer_columns(f.out_size, values) - overlap,
                rows = ceil_div(f.m, plans::kOuterRows);
  const int64_t chunks = plans::outer_chunks(rows, ceil_div(f.n, columns) * f.batch, blocks,
                                             plans::outer_most_chunks(f.out_size), gpu.multiprocessors);
  const DType unit = p.type == DType::f32 ? DType::f64 : p.type;
  const Launch launch{plans::kOuterRows * chunks, columns, plans::direct_depth(f.size, values), blocks};
  Counts c = count_tiles(f, launch, gpu, rate(gpu, Unit::tensor, unit));
  // It is chosen where it was measured: on Hopper, and for a k of one step. A longer k is slow.
  if (!gpu.wgmma || f.k > launch.depth) c.launch = 1;
  return c;
}

Counts count_small_tile(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int64_t depth = 128 / f.size;
  const int splits = plans::small_tile_splits(f.tiles(64, 64), ceil_div(f.k, depth), gpu.multiprocessors);
  const int64_t resident = gpu.wgmma || gpu.shared_bytes >= 192 << 10 ? 3 : gpu.shared_bytes >> 16;
  Counts c = tensor(p, f, {64, 64, depth, resident, splits}, gpu);
  const auto copy = [](const Operand& o) {
    return o.size == 1 && !o.along_k ? Copy::transposed : Copy::none;
  };
  add_copies(c, f, gpu, copy(f.a), copy(f.b));
  add_split_sectors(c, f);
  return c;
}

Counts count_skinny(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p).long_side_first();  // so a is the large side
  const bool units = !f.a.aligned();
  const bool to_lines = !f.b.along_k && (f.size != 2 || (!units && f.n < 64));  // the skinny side is copied
  const auto tiles = [&](int rows) {
    return plans::skinny_tiles(rows, f.batch, f.m, f.n, f.k, f.size, units, gpu);
  };
  // By mma.sync all tiles have 128 rows (fast/skinny_portable.cuh).
  const bool narrow = gpu.wgmma && plans::narrow_skinny_wins(tiles(64), tiles(128)) && !units &&
                      plans::takes_narrow_skinny(f.a.along_k, f.b.along_k || to_lines, f.size);
  const int64_t m = narrow ? 64 : 128, depth = 128 / f.size;
  const bool shares = !tiles(int(m)).whole;
  const int64_t columns = f.n > 32 ? 64 : f.n > 16 ? 32 : 16;
  Counts c = tensor(p, f, {m, columns, depth, 1, 1, shares}, gpu);
  if (shares) c.more_launches = 1 / gpu.clock;
  const bool copied = to_lines || (!units && !f.b.aligned());
  add_copies(c, f, gpu, Copy::none, copied ? Copy::transposed : Copy::none);
  add_split_sectors(c, f);
  return c;
}

Counts count_split_k(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int64_t tile = plans::kSplitKTile, depth = 128 / f.size;
  const double elements = double(f.batch) * double(f.m) * double(f.n);
  const int splits =
      plans::split_k_splits(f.tiles(tile, tile), elements, ceil_div(f.k, depth), gpu.multiprocessors);
  Counts c = tensor(p, f, {tile, tile, depth, 1, splits}, gpu);
  c.more_launches = 1 / gpu.clock;  // a second kernel, also after a single split
  c.passes = 2 * elements * 4 * splits / gpu.bandwidth;
  gpu.wgmma ? add_boxes(c, f, gpu, false) : add_rows(c, f, gpu, f.size == 2);
  return c;
}

Counts count_one_wave(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const plans::WavePlan plan =
      plans::plan_one_wave(plans::wave_problem(f.batch, f.m, f.n, f.k, f.size, f.out_size),
                           f.size != 2 || (f.a.along_k && f.b.along_k), gpu);
  const bool turned = f.n < f.m;
  const auto [rows, columns, splits, resident] = plan.tile;
  Counts c =
      tensor(p, f, {turned ? columns : rows, turned ? rows : columns, 128 / f.size, resident, splits}, gpu);
  c.more_launches = 0, c.passes = 0;  // the blocks of a cluster add their sums
  c.slower = plan.seconds;
  add_boxes(c, f, gpu, false);
  return c;
}

// The fastest of all rows where k is short and C large: two blocks of a multiprocessor take turns in storing.
Counts count_wgmma_boxes(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  Counts c = tensor(p, f, {128, 128, 128 / f.size, 2, 1, true}, gpu);
  add_boxes(c, f, gpu, false);
  return c;
}

Counts count_wgmma_specialized(const GemmProblem& p, const Gpu& gpu) {
  Facts f = facts(p);
  const bool swapped = swaps_boxes(f, true);
  const int64_t rows = swapped ? f.n : f.m, columns = swapped ? f.m : f.n, sms = gpu.multiprocessors;
  const int64_t m = plans::kSpecializedM;
  const bool lower = p.triangle == 1 && !swapped;
  const int64_t n = plans::specialized_columns(f.batch, rows, columns, f.size, f.out_aligned(), sms, lower);
  const int64_t tiles = plans::specialized_tiles(f.batch, rows, columns, n, lower);
  const int chunks = plans::specialized_stages(f.k, f.size) / plans::kChunk;
  const int64_t blocks = plans::specialized_blocks(tiles, chunks, sms);
  const bool shares = plans::plan_stream_k(tiles, chunks, blocks, plans::kLastWave).whole_tiles < tiles;
  const Launch launch{swapped ? n : m, swapped ? m : n, 128 / f.size, 1, 1, shares};
  // The tiles of a triangle are counted as if they lay in one row.
  if (lower) f.batch = 1, f.m = m, f.n = tiles * n, f.result_bytes /= 2, f.c_bytes /= 2;
  Counts c = tensor(p, f, launch, gpu);
  if (shares) c.passes = 2.0 * double(std::min(tiles % blocks * 2, sms) * m * n) * 4 / gpu.bandwidth;
  add_boxes(c, f, gpu, true);
  if (shares) c.more_launches += 1 / gpu.clock;  // clears the flags
  return c;
}

Counts count_bf16x6(const GemmProblem& p, const Gpu& gpu) {
  return planes(p, gpu, 6, 6, DType::bf16, plans::kBf16x6);
}
Counts count_three_planes(const GemmProblem& p, const Gpu& gpu) {
  return planes(p, gpu, 3, 4, DType::bf16, plans::kThreePlanes);
}
Counts count_int8x10(const GemmProblem& p, const Gpu& gpu) {
  return planes(p, gpu, 10, 6, DType::i8, plans::kInt8x10);
}
Counts count_int16x4(const GemmProblem& p, const Gpu& gpu) {
  return planes(p, gpu, 4, 2, DType::i8, plans::kInt16x4);
}

Counts count_bf16x6_fused(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p).long_side_first();
  const auto [tile, splits, slots] = plans::plan_fused(f.batch, f.m, f.n, f.k, f.a.along_k, gpu);
  return count_tiles(f,
                     {tile.rows, tile.columns, plans::kFusedDepth, slots / gpu.multiprocessors, splits.count},
                     gpu, rate(gpu, Unit::tensor, DType::bf16) / 6);
}

Counts count_mma_sync(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  Counts c = tensor(p, f, {128, 256, 128 / f.size, 1, 1, true}, gpu);
  add_rows(c, f, gpu, f.size == 2);
  return c;
}
Counts count_crt(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int moduli = plans::crt_moduli(p);
  Facts bytes = f;  // one product of bytes for each modulus
  bytes.size = 1, bytes.batch = f.batch * moduli;
  // The constants were measured with wgmma. mma.sync has half its rate.
  const double multiply_adds = rate(gpu, Unit::tensor, DType::i8) / (gpu.wgmma ? 1 : 2);
  Counts c = count_tiles(bytes, {plans::kResidueM, plans::kResidueN, 128, 1}, gpu, multiply_adds);
  c.more_launches = double((gpu.wgmma ? 6 : 5 + 2 * moduli) * f.batch) / gpu.clock;
  c.read = 0;
  // Both operands are read twice, and their residues are written. The residues of C are written and read;
  // GPUs without wgmma also write and read sums of four bytes.
  const double sums = double(f.tiles(plans::kResidueM, plans::kResidueN)) * plans::kResidueM *
                      plans::kResidueN * 2 * (gpu.wgmma ? 1 : 5) * moduli;
  c.passes = (sums + (f.a.bytes + f.b.bytes) * (2 + moduli / 8.0)) / gpu.bandwidth;
  c.written = f.result_bytes / gpu.bandwidth;
  return c;
}

Counts count_dmma(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const plans::DmmaPlan plan = plans::plan_dmma(f.batch, f.m, f.n, f.k, gpu.multiprocessors);
  Counts c = tensor(p, f, {plans::kDmmaM, plan.columns, plans::kDmmaDepth, 1, 1, plan.shares}, gpu);
  c.waves = plan.tiles / gpu.clock, c.steps = plan.steps / gpu.clock;
  add_rows(c, f, gpu, true);
  if (plan.shares) c.more_launches += 1 / gpu.clock;  // clears the flags
  return c;
}

// The library's kernels have tiles of many sizes. Of the single tiles that were tried, these predict it best.
Counts count_library(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const bool tensor = p.type != DType::i32 && (p.type != DType::f32 || p.precision == Precision::tf32);
  Launch launch = f.size == 2 ? Launch{128, 256, 64, 1} : Launch{64, 64, 128 / f.size, 2};
  const int64_t most_splits = std::max<int64_t>(ceil_div(f.k, launch.depth) / 8, 1);
  const int64_t room = gpu.multiprocessors * launch.resident / f.tiles(launch.m, launch.n);
  launch.splits = std::clamp<int64_t>(room, 1, most_splits);
  return count_tiles(f, launch, gpu, rate(gpu, tensor ? Unit::tensor : Unit::fma, p.type));
}

}  // namespace fastgemm::predict
