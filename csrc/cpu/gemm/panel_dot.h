// Products with a small C and a long k, for example Gram matrices and least squares, and products with few
// rows. C is the sum of products of panels of A and B (gepdot in Goto and van de Geijn 2008).
//
// Operands are read only about once, so packing all of them takes as long as the product: (8, 200000) times
// (200000, 8) took 5 times as long as torch. Here k is divided into steps whose panel of B fills the L1
// cache, and C stays in the L2 cache. A and B are read in place if a step of k reads neighbours of one row.
// Rows of A are copied to a leading dimension that distributes them over the sets of the L1 cache. Each
// thread computes some columns. If C is small, it computes a part of k with a C of its own, and these are
// added in order, so that the result does not depend on timing.
#pragma once

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

template <class Traits, class Out>
class PanelDot {
  using Acc = typename Traits::Acc;
  using Problem = Product<Traits, Out>;
  static constexpr int64_t MR = Traits::kMR, NR = Traits::kNR;
  static constexpr int64_t kLine = 64 / sizeof(Acc);
  static constexpr int64_t kDepth = (int64_t{32} << 10) / (NR * int64_t{sizeof(Acc)});
  static constexpr int64_t kCopyLd = kDepth + kLine;
  static constexpr int64_t kRowsInPlace = 8;  // the associativity of an L1 cache

 public:
  // C is small, or has few rows: the five loops would take as long to pack B as to multiply it. On an Emerald
  // Rapids, 16 to 64 rows take 0.4 to 0.8 of the time of the five loops, 128 rows 0.9.
  static bool suits(const GemmProblem& p, int threads) {
    if (is_small(p.m, p.n, p.k)) return true;
    if (!saves_packing() || p.n < NR * threads) return false;
    return p.m <= 48 ? p.k >= 128 : p.m <= 128 && p.k >= 512 && p.b.col_stride == 1;
  }

  PanelDot(int64_t m, int64_t n, int64_t k, int threads)
      : by_columns_(!is_small(m, n, k)),
        threads_(by_columns_ ? threads : min<int64_t>(threads, ceil_div(k, kDepth))),
        a_(m * kCopyLd),
        b_(round_up(Traits::panel_units_b(kDepth), kLine)) {
    const int64_t quarter = static_cast<int64_t>(cpu_caches().l2) / 4;  // for the sums of a block
    const int64_t panels = ceil_div(n, NR), most = max<int64_t>(1, quarter / (m * NR * int64_t{sizeof(Acc)}));
    columns_ = NR * (by_columns_ ? ceil_div(panels, round_up(ceil_div(panels, most), threads)) : panels);
    sums_ = m * columns_;
  }

  int64_t scratch_bytes() const { return threads_ * (sums_ + a_ + b_) * int64_t{sizeof(Acc)}; }

  void run(const Problem& p, Context& ctx, void* scratch) const {
    Acc* const sums = static_cast<Acc*>(scratch);
    const auto copies = [&](int64_t task) { return sums + threads_ * sums_ + task * (a_ + b_); };
    const auto store = [&](const Acc* from, int64_t j) {
      const int columns = static_cast<int>(min(columns_, p.n - j));
      store_tile(from, columns_, static_cast<int>(p.m), columns, p.alpha, p.beta, p.o.at(0, j));
    };
    if (by_columns_) {
      return parallel(ctx, threads_, [&](int64_t task) {
        Acc* const mine = sums + task * sums_;
        for (int64_t j = task * columns_; j < p.n && !stopped(ctx); j += threads_ * columns_) {
          add_panels(p, {j, min(p.n, j + columns_)}, {0, p.k}, mine, copies(task), ctx);
          store(mine, j);
        }
      });
    }
    parallel(ctx, threads_, [&](int64_t task) {
      add_panels(p, {0, p.n}, part(p.k, kLine, threads_, task), sums + task * sums_, copies(task), ctx);
    });
    for (int64_t t = 1; t < threads_; ++t)
      for (int64_t i = 0; i < sums_; ++i) sums[i] += sums[t * sums_ + i];
    store(sums, 0);
  }

 private:
  static bool is_small(int64_t m, int64_t n, int64_t k) {
    return k > Traits::kKC && max(m, n) <= 256 && m * n <= 128 * 128;
  }

  void add_panels(const Problem& p, Range columns, Range k, Acc* sums, Acc* copies, Context& ctx) const {
    // The last vector of a row of B may reach into the next row. From row `last` on it would reach beyond the
    // end of B.
    const int64_t over = round_up(p.n, kLanes<Acc>) - p.n;
    const bool in_place = p.b_cs == 1 && (over == 0 || p.b_rs > 0);
    const int64_t last = !in_place ? 0 : over == 0 ? p.k : p.k - ceil_div(over, p.b_rs);
    Pace pace;
    const int64_t step = ceil_div(p.m, ceil_div(p.m, MR));  // 16 rows as 8 and 8, not 14 and 2
    for (int64_t at = k.begin, depth; at < k.end; at += depth) {
      depth = min(kDepth, (at < last ? min(last, k.end) : k.end) - at);
      if (pace.due(p.m * columns.size() * depth) && stopped(ctx)) return;
      MicroTile<Traits> t{};
      t.k = depth, t.ldc = columns_, t.accumulate = at > k.begin;
      const Acc* a = p.a + at * p.a_cs;
      t.a_rs = p.a_rs, t.a_ks = p.a_cs;
      if (p.a_rs != 1 && p.m > kRowsInPlace) {
        copy_rows(p, a, depth, copies);
        a = copies, t.a_rs = kCopyLd, t.a_ks = 1;
      }
      for (int64_t j = columns.begin; j < columns.end; j += NR) {
        t.cols = static_cast<int>(min(NR, p.n - j));
        t.b = p.b + at * p.b_rs + j * p.b_cs, t.b_ks = p.b_rs;
        if (at >= last) {
          Traits::pack_b(copies + a_, t.b, p.b_cs, p.b_rs, p.n - j, depth);
          t.b = copies + a_, t.b_ks = NR;
        }
        for (int64_t i = 0; i < p.m; i += step) {
          t.rows = static_cast<int>(min(step, p.m - i));
          t.next_columns = i == 0 ? 2 * NR : 0;
          t.a = a + i * t.a_rs;
          t.c = sums + i * columns_ + (j - columns.begin);
          Traits::template micro_kernel<Reads::in_place>(t);
        }
      }
    }
  }

  static void copy_rows(const Problem& p, const Acc* a, int64_t depth, Acc* to) {
    for (int64_t i = 0; i < p.m; ++i, a += p.a_rs, to += kCopyLd) {
      int64_t k = 0;
      for (; p.a_cs == 1 && k + kLanes<Acc> <= depth; k += kLanes<Acc>)
        store(to + k, load<Vector<Acc>>(a + k));
      for (; k < depth; ++k) to[k] = a[k * p.a_cs];
    }
  }

  bool by_columns_;                 // each thread computes blocks of columns; otherwise a part of k
  int64_t threads_, a_, b_, sums_;  // a_, b_, sums_: numbers in the buffers of a thread
  int64_t columns_;                 // of a block of C
};

}  // namespace fastgemm::FASTGEMM_ISA
