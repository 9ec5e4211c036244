// The rows of levels 2 to 5, and narrow: multiply-adds of the ordinary units.
#include "cuda/gemm/predict/narrow_plan.h"
#include "cuda/gemm/predict/tiles.h"

namespace fastgemm::predict {
namespace {

// Whether sums take 8 bytes.
bool is_wide(DType type) { return element_size(sum_type(type)) == 8; }

Counts simple(const GemmProblem& p, const Gpu& gpu, int64_t tile, int64_t depth, int64_t resident) {
  return count_tiles(facts(p), {tile, tile, depth, resident}, gpu, rate(gpu, Unit::fma, p.type));
}

Counts small(const GemmProblem& p, const Gpu& gpu, int64_t tile) {
  const Facts f = facts(p);
  const int64_t resident = tile == 32 ? 16 : is_wide(p.type) ? 3 : 5;
  const int splits = plans::small_splits(f.tiles(tile, tile), f.k, f.size, gpu.multiprocessors);
  return count_tiles(f, {tile, tile, plans::small_depth(f.size), resident, splits}, gpu,
                     rate(gpu, Unit::fma, p.type));
}

}  // namespace

Counts count_tiled(const GemmProblem& p, const Gpu& gpu) { return simple(p, gpu, 32, 32, 2); }
Counts count_thread_tile(const GemmProblem& p, const Gpu& gpu) { return simple(p, gpu, 64, 32, 3); }
Counts count_vectorized(const GemmProblem& p, const Gpu& gpu) {
  return simple(p, gpu, 128, 16, is_wide(p.type) ? 1 : 2);
}
Counts count_small(const GemmProblem& p, const Gpu& gpu) { return small(p, gpu, 64); }
Counts count_batched(const GemmProblem& p, const Gpu& gpu) { return small(p, gpu, 32); }

// The values of k in a word of a panel.
static constexpr int64_t per_word(const GemmProblem& p) { return p.type == DType::i8 ? 4 : 1; }

Counts count_cp_async(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const int64_t m = is_wide(p.type) ? 64 : 128;
  const int64_t depth = plans::kCpAsyncDepth * per_word(p);
  const int splits = plans::cp_async_splits(f.tiles(m, 128), ceil_div(f.k, depth), gpu.multiprocessors);
  Counts c = count_tiles(f, {m, 128, depth, 2, splits}, gpu, rate(gpu, Unit::fma, p.type));
  const auto copied = [&](const Operand& o) { return f.size < 4 || !o.aligned() || o.along_k; };
  add_copies(c, f, gpu, copied(f.a), copied(f.b));
  return c;
}
Counts count_warp_specialized(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  Counts c = count_tiles(f, {p.type == DType::f64 ? 64 : 128, 256, 16 * per_word(p), 1, 1, true}, gpu,
                         rate(gpu, Unit::fma, p.type));
  const auto copied = [&](const Operand& o) { return f.size < 4 || !o.aligned() || o.along_k; };
  add_copies(c, f, gpu, copied(f.a), copied(f.b));
  return c;
}

Counts count_narrow(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p).long_side_first();  // so a is the wide side
  const int load = plans::narrow_load(f.size);
  const bool along_k = f.a.takes_loads_of(load, true) && f.b.takes_loads_of(load, true);
  const bool along_rows = !along_k && f.a.takes_loads_of(load, false);
  const auto reads = along_k      ? plans::Reads::along_k
                     : along_rows ? plans::Reads::along_rows
                                  : plans::Reads::elements;
  const plans::NarrowShape shape{f.batch, f.m, f.n, f.k, f.a.along_k};
  const auto [thread, plan] = plans::choose_narrow(reads, f.size, shape, gpu.multiprocessors);
  const double cycle = 1 / gpu.clock, sms = gpu.multiprocessors, blocks = double(plan.blocks);
  Counts c{};
  c.launch = cycle;
  c.more_launches = plan.splits > 1 ? cycle : 0;
  c.code = double(thread.narrow * thread.rows() * thread.unroll() * (along_k || along_rows ? 1 : 2)) * cycle;
  c.waves = double(plan.waves) * cycle;
  c.steps = double(plan.waves * plan.part_steps) * cycle;
  c.busiest = double(plan.waves * plan.sums) * cycle;
  c.all = double(f.batch) * double(f.m) * double(f.n) * double(f.k) / (rate(gpu, Unit::fma, p.type) * sms) *
          cycle;
  c.tiles_busiest = double(ceil_div(plan.blocks, gpu.multiprocessors)) * plan.bytes / blocks / 64 * cycle;
  c.tiles = plan.bytes / (32 * sms) * cycle;
  c.read = (f.a.bytes + f.b.bytes) / gpu.bandwidth;
  c.written = (f.result_bytes + f.c_bytes) / gpu.bandwidth;
  c.slower = plan.microseconds * 1980 * cycle;  // in cycles of an H200
  c.unaligned = along_k || along_rows ? 0 : c.tiles_busiest;
  // If neighbouring threads are neighbours along k but the narrow side does not lie along k, each thread
  // reads a sector of its own from that side.
  const double rows = double(plan.threads_rows * thread.rows() + thread.narrow);
  const bool lines_k = shape.lines_along_k(reads);
  const double sectors = lines_k && !f.b.along_k ? 32.0 / f.size * thread.narrow / rows : 0;
  c.across = (lines_k ? sectors : 1) * c.tiles_busiest;
  c.odd_result = f.out_aligned() ? 0 : c.written;
  c.partial = plan.splits > 1 ? 2 * f.result_bytes * plan.splits / gpu.bandwidth : 0;
  return c;
}

}  // namespace fastgemm::predict
