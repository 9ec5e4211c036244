// Products with a small C and a long k, for example Gram matrices and least squares. C is the sum of products
// of panels of A and B (gepdot in Goto and van de Geijn 2008).
//
// Operands are read only about once, so packing all of them takes as long as the product: (8, 200000) times
// (200000, 8) took 5 times as long as torch. Here k is divided into steps whose panel of B fills the L1
// cache, and C stays in the L2 cache. A and B are read in place if a step of k reads neighbours of one row.
// Rows of A are copied to a leading dimension that distributes them over the sets of the L1 cache. Each
// thread computes a part of k with a C of its own. These are added in order, so that the result does not
// depend on timing.
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
  static bool suits(int64_t m, int64_t n, int64_t k) {
    return k > Traits::kKC && max(m, n) <= 256 && m * n <= 128 * 128;
  }

  PanelDot(int64_t m, int64_t n, int64_t k, int threads)
      : threads_(min<int64_t>(threads, ceil_div(k, kDepth))),
        ldc_(round_up(n, NR)),
        sums_(m * ldc_),
        a_(m * kCopyLd),
        b_(round_up(Traits::panel_units_b(kDepth), kLine)) {}

  int64_t scratch_bytes() const { return threads_ * (sums_ + a_ + b_) * int64_t{sizeof(Acc)}; }

  void run(const Problem& p, Context& ctx, void* scratch) const {
    Acc* const sums = static_cast<Acc*>(scratch);
    parallel(ctx, threads_, [&](int64_t task) {
      Acc* const copies = sums + threads_ * sums_ + task * (a_ + b_);
      add_panels(p, part(p.k, kLine, threads_, task), sums + task * sums_, copies, ctx);
    });
    for (int64_t t = 1; t < threads_; ++t)
      for (int64_t i = 0; i < sums_; ++i) sums[i] += sums[t * sums_ + i];
    store_tile(sums, ldc_, static_cast<int>(p.m), static_cast<int>(p.n), p.alpha, p.beta, p.o);
  }

 private:
  void add_panels(const Problem& p, Range k, Acc* sums, Acc* copies, Context& ctx) const {
    // The last vector of a row of B may reach into the next row. From row `last` on it would reach beyond the
    // end of B.
    const int64_t over = round_up(p.n, kLanes<Acc>) - p.n;
    const bool in_place = p.b_cs == 1 && (over == 0 || p.b_rs > 0);
    const int64_t last = !in_place ? 0 : over == 0 ? p.k : p.k - ceil_div(over, p.b_rs);
    Pace pace;
    for (int64_t at = k.begin, depth; at < k.end; at += depth) {
      depth = min(kDepth, (at < last ? min(last, k.end) : k.end) - at);
      if (pace.due(p.m * p.n * depth) && stopped(ctx)) return;
      MicroTile<Traits> t{};
      t.k = depth, t.ldc = ldc_, t.accumulate = at > k.begin;
      const Acc* a = p.a + at * p.a_cs;
      t.a_rs = p.a_rs, t.a_ks = p.a_cs;
      if (p.a_rs != 1 && p.m > kRowsInPlace) {
        copy_rows(p, a, depth, copies);
        a = copies, t.a_rs = kCopyLd, t.a_ks = 1;
      }
      for (int64_t j = 0; j < p.n; j += NR) {
        t.cols = static_cast<int>(min(NR, p.n - j));
        t.b = p.b + at * p.b_rs + j * p.b_cs, t.b_ks = p.b_rs;
        if (at >= last) {
          Traits::pack_b(copies + a_, t.b, p.b_cs, p.b_rs, p.n - j, depth);
          t.b = copies + a_, t.b_ks = NR;
        }
        for (int64_t i = 0; i < p.m; i += MR) {
          t.rows = static_cast<int>(min(MR, p.m - i));
          t.a = a + i * t.a_rs;
          t.c = sums + i * ldc_ + j;
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

  int64_t threads_, ldc_, sums_, a_, b_;
};

}  // namespace fastgemm::FASTGEMM_ISA
