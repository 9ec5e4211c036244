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

// The rows that multiply packed panels: operands are copied unless their rows begin at units of 16 bytes and
// run along m or n. A word of a panel has four bytes of k.
static Counts panels(const GemmProblem& p, const Gpu& gpu, Launch launch, bool splits) {
  const Facts f = facts(p);
  if (p.type == DType::i8) launch.depth *= 4;
  if (splits)
    launch.splits =
        plans::cp_async_splits(f.tiles(launch.m, launch.n), ceil_div(f.k, launch.depth), gpu.multiprocessors);
  Counts c = count_tiles(f, launch, gpu, rate(gpu, Unit::fma, p.type));
  const auto copy = [&](const Operand& o) {
    return f.size < 4 || !o.aligned() || o.along_k ? Copy::rows : Copy::none;
  };
  add_copies(c, f, gpu, copy(f.a), copy(f.b));
  return c;
}
Counts count_cp_async(const GemmProblem& p, const Gpu& gpu) {
  return panels(p, gpu, {is_wide(p.type) ? 64 : 128, 128, plans::kCpAsyncDepth, 2}, true);
}
Counts count_warp_specialized(const GemmProblem& p, const Gpu& gpu) {
  return panels(p, gpu, {p.type == DType::f64 ? 64 : 128, 256, 16, 1, 1, true}, false);
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
  Counts c = count_tiles(f, {rows, thread.narrow, depth, thread.resident(), plan.splits}, gpu,
                         rate(gpu, Unit::fma, p.type));
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

}  // namespace fastgemm::predict
