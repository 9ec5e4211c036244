#include "cuda/gemm/predict/tiles.h"

namespace fastgemm::predict {
namespace {

// The largest power of two up to 32 that divides the address of every row: rows are `pitch` elements apart.
int alignment(const void* data, int64_t pitch, int64_t batch_stride, int size) {
  const uint64_t offsets = reinterpret_cast<uintptr_t>(data) | uint64_t((pitch | batch_stride) * size) | 32;
  return int(offsets & -offsets);
}

Operand operand(const ConstMatrix& x, int64_t side, int64_t k, int64_t batch, int64_t side_stride,
                int64_t k_stride, int size) {
  Operand o{.size = size, .side = side, .k = k};
  o.bytes = double(x.batch_stride == 0 ? 1 : batch) * double(side) * double(k) * size;
  o.along_k = k_stride == 1 || k == 1, o.along_side = side_stride == 1 || side == 1;
  const int64_t pitch = o.along_k ? (side == 1 ? 0 : side_stride) : (k == 1 ? 0 : k_stride);
  o.alignment = alignment(x.data, pitch, batch > 1 ? x.batch_stride : 0, size);
  return o;
}

}  // namespace

Facts facts(const GemmProblem& p) {
  if (p.out.col_stride != 1 && p.n != 1 && p.out.row_stride == 1) return facts(p.transposed());
  const int size = element_size(p.type), out_size = element_size(p.out_type);
  // Extents count as at least 1. Empty products are predicted, too, but their prediction does not matter.
  const auto some = [](int64_t x) { return std::max<int64_t>(x, 1); };
  Facts f{.batch = some(p.batch),
          .m = some(p.m),
          .n = some(p.n),
          .k = some(p.k),
          .size = size,
          .out_size = out_size};
  f.a = operand(p.a, f.m, f.k, f.batch, p.a.row_stride, p.a.col_stride, size);
  f.b = operand(p.b, f.n, f.k, f.batch, p.b.col_stride, p.b.row_stride, size);
  const int64_t pitch = p.m == 1 ? 0 : p.out.col_stride == 1 ? p.out.row_stride : p.out.col_stride;
  // A row that does not end at a multiple of 16 bytes is stored like one that does not begin at one.
  f.out_alignment = alignment(nullptr, pitch | p.n, p.batch > 1 ? p.out.batch_stride : 0, out_size);
  f.result_bytes = double(p.batch) * double(p.m) * double(p.n) * out_size;
  f.c_bytes = p.beta != 0 ? f.result_bytes : 0;
  return f;
}

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

// If A is multiplied from registers, an operand whose side runs along rows needs no copy; only one operand
// can be A. So A and B may be exchanged.
bool swaps_boxes(const Facts& f, bool registers) {
  const bool keeps_b = f.b.has_side_in_rows() && !(f.a.has_side_in_rows() && f.m >= f.n);
  return registers && f.size != 2 && keeps_b;
}
void add_boxes(Counts& c, const Facts& f, const Gpu& gpu, bool registers) {
  const auto copy = [&](const Operand& o, bool keeps) {
    if (o.has_side_in_rows() && f.size != 2 && !keeps) return Copy::transposed;
    const bool is_large = f.size <= 2 && o.alignment < 32 && std::min({f.m, f.n, f.k}) >= 3072;
    return o.aligned() && !is_large ? Copy::none : Copy::rows;
  };
  const bool swaps = swaps_boxes(f, registers);
  add_copies(c, f, gpu, copy(f.a, registers && !swaps), copy(f.b, registers && swaps));
}
void add_rows(Counts& c, const Facts& f, const Gpu& gpu, bool takes_any) {
  const auto copy = [&](const Operand& o) {
    const bool as_it_lies = takes_any || o.along_k;
    if (o.aligned() && as_it_lies) return Copy::none;
    const bool is_short = o.size == 8 || (o.along_k ? o.k : o.side) * o.size < 128;
    return !as_it_lies || is_short ? Copy::transposed : Copy::rows;
  };
  add_copies(c, f, gpu, copy(f.a), copy(f.b));
}

}  // namespace fastgemm::predict
