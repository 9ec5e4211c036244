#include "cpu/gemm/predict/counts.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu/gemm/predict/tile.h"
#include "cpu/gemm/predict/weights.h"

namespace fastgemm::cpu_predict {
namespace {

struct Operand {
  int64_t width, k;       // rows of A, columns of B
  bool along_w, along_k;  // which direction is contiguous in memory
};

// Counts the work of each route, in cycles; finish() converts them to seconds.
class Counter {
 public:
  Counter(const Tile& tile, const GemmProblem& p, const Cpu& cpu)
      : t_(tile),
        p_(p),
        cpu_(cpu),
        size_(element_size(p.type)),
        out_size_(element_size(p.out_type)),
        b_size_(p.packed.is_given() ? bytes_of_weight(p.packed) : double(size_)),
        a_{p.m, p.k, p.a.row_stride == 1, p.a.col_stride == 1},
        b_{p.n, p.k, p.b.col_stride == 1, p.b.row_stride == 1} {
    own_sums_ = (p.type == DType::f16 || p.type == DType::bf16) && p.out_type == p.type;
    plain_ = p.alpha == 1.0 && p.beta == 0.0;
  }

  Counts of_routes(int threads) {
    if (p_.packed.is_given()) {
      of_batch(threads, [&](int on) { five_loops(p_.k, on, own_sums_); });
      return finish(threads);
    }
    if (tiny(threads)) return finish(threads);
    constexpr double kWorthAFork = 96.0 * 96 * 96;
    const int all = threads;
    if (double(p_.batch) * double(p_.m) * double(p_.n) * double(p_.k) < kWorthAFork) threads = 1;
    if (few_rows(threads, all)) return finish(all);
    const double work = double(p_.m) * double(p_.n) * double(p_.k);
    const int64_t tiles = ceil_div(p_.m, t_.rows) * ceil_div(p_.n, t_.columns());
    const double side = threads > 1 && p_.batch <= 1 && saves_packing(cpu_) ? 320 : 192;
    if (t_.in_place && p_.k <= t_.depth && (work <= side * side * side || p_.n <= 2 * t_.columns())) {
      of_batch(threads, [&](int on) { in_place(on); });
    } else if (t_.in_place && takes_panel_dot(p_.batch > 1 ? 1 : threads)) {
      of_batch(threads, [&](int on) { panel_dot(on); });
    } else if (t_.in_place && p_.batch == 1 && goes_by_columns(threads)) {
      by_columns(threads);
    } else if (threads > 1 && tiles < 8 * threads && p_.k >= 4 * t_.depth && p_.m * p_.n <= 128 * 128) {
      split_k(threads);
    } else {
      of_batch(threads, [&](int on) { five_loops(p_.k, on, own_sums_); });
    }
    return finish(threads);
  }
  Counts of_one_thread() {
    of_batch(1, [&](int on) { five_loops(p_.k, on, own_sums_); });
    return finish(1);
  }

 private:
  template <class One>
  void of_batch(int threads, One&& one) {
    const double work = double(p_.m) * double(p_.n) * double(p_.k);
    c_[kMember] = p_.batch > 1 ? 1 : 0;
    if (p_.batch > 1 && threads > 1 && (p_.batch >= 2 * threads || work < 96.0 * 96 * 96)) {
      one(1), scale(double(ceil_div(p_.batch, threads)));
      fork(threads);
    } else {
      one(threads), scale(double(p_.batch));
    }
  }
  void scale(double times) {
    for (double& x : c_) x *= times;
    traffic_ *= times;
  }
  void fork(int threads, double times = 1) {
    if (threads > 1) c_[kFork] += times * std::bit_width(unsigned(threads - 1));
  }

  int64_t at_once() const { return goes_in_pairs(p_.type) ? 2 : 1; }
  void few_rows_of_rows(int64_t rows, int64_t share, int64_t k) {
    // The cycles of one vector of columns in four rows of B are the largest of three: its products, its loads
    // of B, of y and of the factors (two in a cycle), and its stores of y.
    const double r = double(rows), products = 4 * r / double(at_once());
    const double four = std::max({products / cpu_.vector_issue, (4 + r + products) / 2, r});
    c_[kStream] += four * double(ceil_div(k, 4)) * double(share) / double(t_.lanes);
    c_[kScalar] += r * double(share % t_.lanes) * double(k);
  }
  void few_rows_of_columns(int64_t rows, int64_t share, int64_t k) {
    const int64_t columns = std::clamp<int64_t>((cpu_.isa == Isa::avx512 ? 24 : 8) / rows, 1, 4);
    const double r = double(rows), c = double(columns);
    const double step = std::max({r * c / cpu_.vector_issue, 4.0, (r + c) / 2});
    c_[kStreamColumns] += step * double(ceil_div(share, columns)) * double(ceil_div(k, t_.lanes * at_once()));
    c_[kSums] += r * double(share) * double(std::bit_width(uint64_t(t_.lanes)) - 1);
    c_[kScalar] += r * double(share) * double(k % (t_.lanes * at_once()));
  }
  // A batch of products that plain loops multiply (tiny.h).
  bool tiny(int threads) {
    constexpr double kMost = 128, kTask = 1 << 15;
    const double each = double(p_.m) * double(p_.n) * double(p_.k), work = double(p_.batch) * each;
    if (p_.batch == 1 || each > kMost || !plain_) return false;
    const double on = std::clamp(std::floor(work / kTask), 1.0, double(threads));
    c_[kScalar] += work / on;
    if (on > 1) fork(int(on));
    traffic_ += double(p_.batch) * (double(p_.k) * double(p_.m + p_.n) * double(size_) +
                                    double(p_.m) * double(p_.n) * double(out_size_));
    return true;
  }

  // The route of few_rows.h. Its vectors have lanes of the accumulator's type. If columns of B are
  // contiguous, up to 16 rows are computed in two groups. `all` threads are used if B has enough bytes, even
  // if there are few multiply-adds.
  bool few_rows(int threads, int all) {
    constexpr int64_t kAtOnce = 8, kWorthAFork = 512 << 10;
    const auto suits = [&](int64_t rows, const Operand& b) {
      if (rows <= kAtOnce) return b.along_w || b.along_k;
      return t_.in_place && rows <= 2 * kAtOnce && b.along_k && p_.k > 512;
    };
    const bool swap = !suits(p_.m, b_);
    const int64_t rows = swap ? p_.n : p_.m, n = swap ? p_.m : p_.n;
    const Operand& b = swap ? a_ : b_;
    if (threads == 1)
      threads = int(std::clamp<int64_t>(std::min(n * p_.k * size_ / kWorthAFork, n / 32), 1, all));
    if (!suits(rows, b) || p_.batch != 1 || n < 32 * threads) return false;
    const Operand& x = swap ? b_ : a_;
    const bool widened = t_.in_place && x.along_k;
    if (!widened) c_[kScalar] += double(rows) * double(p_.k);
    const int64_t share = std::min(n, ceil_div(ceil_div(n, 16), threads) * 16);
    for (int64_t r = 0; r < rows; r += kAtOnce) {
      const int64_t group = std::min(kAtOnce, rows - r);
      b.along_w ? few_rows_of_rows(group, share, p_.k) : few_rows_of_columns(group, share, p_.k);
    }
    c_[kScalar] += double(rows) * double(share);
    fork(threads);
    traffic_ += (double(p_.n) + double(p_.m)) * double(p_.k) * double(size_) +
                double(p_.m) * double(p_.n) * double(out_size_);
    return true;
  }

  // Counts the packing of `panels` panels of depth k, each with `panel` rows or columns. All panels are full,
  // except the last one of the operand.
  void pack(const Operand& o, int64_t panel, double panels, double k) {
    if (t_.unit_cycles > 0) {  // whole tiles with 64 bytes of k per row
      c_[o.along_k ? kPackStraight : kPackAcross] += panels * double(panel) * std::ceil(k / double(t_.group));
      return;
    }
    const double groups = std::ceil(k / double(t_.group)), lanes = double(t_.lanes);
    const double vectors = double(ceil_div(panel, t_.lanes)),
                 ragged = o.width % panel ? std::min(panels, 1.0) : 0;
    double transposed = 0;
    if (o.along_w) {
      c_[kPackStraight] += (panels - ragged) * vectors * groups;
      (o.along_k ? transposed : c_[kPackScalar]) += ragged * (o.along_k ? 1 : double(panel) * groups);
    } else if (o.along_k) {
      transposed = panels;
    } else {
      c_[kPackScalar] += panels * double(panel) * groups;
    }
    const double tail = std::fmod(groups, lanes);
    c_[kPackAcross] += transposed * vectors * (groups - tail);
    c_[kPackScalar] += transposed * double(panel) * tail;
  }

  // Counts register tiles for `rows` rows, `panels` panels of columns and `groups` k-groups in `blocks`
  // k-blocks.
  void tiles(int64_t rows, int64_t panels, double groups, double blocks) {
    if (panels <= 0 || rows <= 0) return;
    const int64_t full = rows / t_.rows, rest = rows % t_.rows;
    const int64_t tail = p_.n % t_.columns();
    const bool narrow = t_.vectors > 1 && t_.unit_cycles == 0 && tail != 0 && tail <= t_.lanes;
    const auto column = [&](int64_t v) {
      return double(full) * t_.step(t_.rows, v) + (rest ? t_.step(t_.partial_rows ? rest : t_.rows, v) : 0.0);
    };
    c_[kMultiply] += groups * (double(panels - narrow) * column(t_.vectors) + (narrow ? column(1) : 0.0));
    c_[kTiles] += double(panels) * double(full + (rest != 0)) * blocks;
  }

  void five_loops(int64_t k, int threads, bool own_sums) {
    const int64_t nr = t_.columns(), mr = t_.rows, step = t_.partial_rows ? 4 : mr;
    const int64_t k_blocks = std::max<int64_t>(1, ceil_div(k, t_.block ? t_.block : t_.depth));
    const int64_t kc = round_up(ceil_div(k, k_blocks), std::max<int64_t>(t_.group, 8));
    int64_t grid_m = 1, best = INT64_MAX;
    for (int64_t rows = 1; rows <= threads; ++rows) {
      if (threads % rows) continue;
      const int64_t cell_m = ceil_div(ceil_div(p_.m, step), rows) * step;
      const int64_t cell_n = ceil_div(ceil_div(p_.n, nr), threads / rows) * nr;
      const int64_t cost = cell_m * cell_n + 8 * (cell_m + cell_n);
      if (cost <= best) best = cost, grid_m = rows;
    }
    const int64_t grid_n = threads / grid_m;
    const int64_t b_panel = ceil_div(kc, t_.group) * nr * t_.unit;
    constexpr int64_t kBudget = 8 << 20;
    const int64_t nc = std::min(round_up(p_.n, nr), nr * std::max<int64_t>(1, kBudget / b_panel));
    const int64_t packed = std::min(k_blocks, std::max<int64_t>(1, kBudget / (ceil_div(nc, nr) * b_panel)));
    const int64_t chunks = ceil_div(p_.n, nc), passes = ceil_div(k_blocks, packed);
    const int64_t cell_m = std::min(p_.m, ceil_div(ceil_div(p_.m, step), grid_m) * step);
    const double groups = double(ceil_div(k, t_.group));
    for (int64_t j = 0; j < chunks; ++j) {
      const int64_t columns = std::min(nc, p_.n - j * nc), panels = ceil_div(columns, nr);
      const int64_t mine = ceil_div(panels, grid_n);
      pack(b_, nr, double(panels) / threads, double(k));
      pack(a_, mr, double(ceil_div(cell_m, mr)), double(k));
      c_[kShared] += double(mine * nr * t_.unit) * groups * double(threads - 1) / (16.0 * threads);
      tiles(cell_m, mine, groups, double(k_blocks));
      of_result(cell_m, std::min(columns, mine * nr), k_blocks, own_sums);
    }
    fork(threads, 2.0 * double(chunks * passes));
    const double reads_a = double(chunks * grid_n), sums = double(2 * k_blocks - 1);
    traffic_ +=
        double(k) * (b_size_ * double(p_.n) + double(size_) * reads_a * double(p_.m)) +
        double(p_.m) * double(p_.n) * (own_sums ? 4 * sums + double(out_size_) : double(out_size_) * sums);
  }

  // Counts the work of tiles on C, except storing it once.
  void of_result(int64_t rows, int64_t columns, int64_t k_blocks, bool own_sums) {
    const double vectors = double(rows) * double(columns) / double(t_.lanes);
    c_[kEpilogue] += double(k_blocks - 1) * vectors;
    const int64_t tail = p_.n % t_.columns();
    const bool buffered = own_sums || !plain_;
    if (buffered) c_[kEpilogue] += vectors;
    if (tail) {
      const double times = own_sums ? 1 : double(k_blocks);
      if (!buffered) c_[kEpilogue] += times * double(rows) * double(tail / t_.lanes + 1);
      c_[kScalar] += times * double(rows) * double(tail % t_.lanes);
    }
  }

  void in_place(int threads) {
    const int64_t nr = t_.columns(), panels = ceil_div(p_.n, nr);
    int64_t grid_n = std::min<int64_t>(threads, panels);
    while (threads % grid_n || (panels % grid_n && p_.m >= 2 * t_.rows * threads && grid_n > 1)) --grid_n;
    const int64_t rows = std::min(p_.m, ceil_div(ceil_div(p_.m, t_.rows), threads / grid_n) * t_.rows);
    const int64_t mine = ceil_div(panels, grid_n), columns = std::min(p_.n, mine * nr), tail = p_.n % nr;
    if (!b_.along_w)
      pack(b_, nr, double(mine), double(p_.k));
    else if (tail)
      c_[kPackScalar] += double(tail) * double(p_.k);
    tiles(rows, mine, double(p_.k), 1);
    of_result(rows, columns, 1, false);
    fork(threads);
    traffic_ +=
        double(p_.k) * double(size_) * double(p_.m + p_.n) + double(p_.m) * double(p_.n) * double(out_size_);
  }

  // The same condition as ByColumns::suits() in by_columns.h.
  bool goes_by_columns(int threads) const {
    const int64_t each = ceil_div(ceil_div(p_.n, t_.columns()), threads) * t_.columns();
    if (!saves_packing(cpu_) || threads == 1 || each * threads * 50 > p_.n * 51) return false;
    const int64_t beyond = p_.a.row_stride * size_ & 4095;
    const bool unpacked =
        p_.m > 1 && a_.along_k && each <= t_.unpacked_columns && std::min(beyond, 4096 - beyond) >= 64;
    return each >= (unpacked ? 128 : 512) && p_.m * p_.n * p_.k <= int64_t{1} << 30;
  }
  // The five loops on one thread, for its columns; the bytes that all of them read.
  void by_columns(int threads) {
    GemmProblem mine = p_;
    mine.n = ceil_div(ceil_div(p_.n, t_.columns()), threads) * t_.columns();
    Counter one(t_, mine, cpu_);
    one.five_loops(p_.k, 1, false);
    for (size_t i = 0; i < c_.size(); ++i) c_[i] += one.c_[i];
    traffic_ += threads * one.traffic_;
    fork(threads);
  }

  // The same condition as PanelDot::suits() in panel_dot.h.
  bool has_small_result() const {
    return p_.k > t_.depth && std::max(p_.m, p_.n) <= 256 && p_.m * p_.n <= 128 * 128;
  }
  bool takes_panel_dot(int threads) const {
    if (has_small_result()) return true;
    if (!saves_packing(cpu_) || p_.n < t_.columns() * threads) return false;
    return p_.m <= 48 ? p_.k >= 128 : p_.m <= 128 && p_.k >= 512 && b_.along_w;
  }

  // The route of panel_dot.h. Each thread computes some columns, or a part of k. A and B are read in place,
  // with two exceptions: B with contiguous columns, and more than 8 rows of A whose columns are not
  // contiguous.
  void panel_dot(int threads) {
    const double in_l1 = (32 << 10) / double(t_.columns() * t_.unit);
    const bool wide = !has_small_result();
    const double k = double(p_.k) / (wide ? 1 : threads), blocks = std::ceil(k / in_l1);
    const int64_t panels = ceil_div(p_.n, t_.columns() * (wide ? threads : 1));
    if (!b_.along_w) pack(b_, t_.columns(), double(panels), k);
    if (!a_.along_w && p_.m > 8) c_[kPackStraight] += k * double(ceil_div(p_.m, t_.lanes));
    tiles(p_.m, panels, k, blocks);
    const double result = double(p_.m) * double(p_.n) / double(t_.lanes);
    c_[kEpilogue] += wide ? blocks * result / threads : (blocks - 1 + threads) * result;
    fork(threads);
    traffic_ +=
        double(p_.k) * double(size_) * double(p_.m + p_.n) + double(p_.m) * double(p_.n) * double(out_size_);
  }

  void split_k(int threads) {
    const int64_t part = ceil_div(ceil_div(p_.k, t_.group), threads) * t_.group;
    five_loops(part, 1, false);
    const double vectors = double(p_.m) * double(p_.n) / double(t_.lanes);
    c_[kEpilogue] += double(threads) * vectors;
    traffic_ += double(threads - 1) * double(p_.k) / threads * double(size_) * double(p_.m + p_.n);
    fork(threads);
    scale(double(p_.batch));
  }

  Counts finish(int threads) {
    const double held =
        double(p_.batch) * (double(p_.k) * (double(size_) * double(p_.m) + b_size_ * double(p_.n)) +
                            double(p_.m) * double(p_.n) * double(out_size_));
    const auto beyond = [&](double cache) { return std::max(0.0, 1 - cache / std::max(held, 1.0)); };
    const double cycle = 1 / cpu_.clock;
    c_[kCall] = 1;
    for (double& x : c_) x *= cycle;
    c_[kCache] = traffic_ * beyond(double(cpu_.l2) * threads) / (16.0 * threads) * cycle;
    const double bandwidth = std::min(cpu_.core_bandwidth * threads, cpu_.bandwidth);
    c_[kMemory] = traffic_ * beyond(double(cpu_.l3)) / bandwidth;
    return c_;
  }

  const Tile t_;
  const GemmProblem& p_;
  const Cpu& cpu_;
  const int64_t size_, out_size_;
  const double b_size_;  // bytes of an element of b
  const Operand a_, b_;
  bool own_sums_ = false, plain_ = true;
  Counts c_{};
  double traffic_ = 0;  // bytes between caches and memory if nothing fits in a cache
};

}  // namespace

const std::array<std::string_view, kCounts> kCountNames = {
    "call",         "fork",       "multiply",   "tiles",     "pack_straight",  "pack_across",
    "pack_scalar",  "epilogue",   "scalar",     "stream",    "stream_columns", "sums",
    "member",       "shared",     "cache",      "memory",    "large_call",     "alone",
    "alone_across", "alone_rows", "alone_axpy", "alone_dot", "alone_each",     "padded",
    "read_a",       "read_b",     "written",    "few_rows",  "few_columns",    "few_across",
    "small_result"};

bool runs_on(Row row, const Cpu& cpu) {
  switch (row) {
    case Row::dot_bf16:
      return cpu.dot_bf16;
    case Row::dot_int8:
      return cpu.vnni;
    case Row::amx_bf16:
      return cpu.amx_bf16;
    case Row::amx_int8:
      return cpu.amx_int8;
    case Row::mmla_bf16:
      return cpu.mmla_bf16;
    case Row::mmla_int8:
      return cpu.mmla_int8;
    default:
      return true;
  }
}

Counts count(Row row, const GemmProblem& problem, const Cpu& cpu, int threads) {
  if (row == Row::torch) return count_library(problem, cpu, threads);
  // Transposes the problem as table.cpp does.
  const bool contiguous_rows = problem.out.col_stride == 1 || problem.n == 1;
  const GemmProblem p = contiguous_rows ? problem : problem.transposed();
  Counter counter(tile_of(row, p.type, cpu), p, cpu);
  threads = std::max(threads, 1);
  return row == Row::simd ? counter.of_one_thread() : counter.of_routes(threads);
}

}  // namespace fastgemm::cpu_predict
