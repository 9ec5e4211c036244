// The five loops, with some columns of C for each thread, which packs what it multiplies.
//
// Threads that share a packed B wait for one another before they multiply, and read half of it or more from
// another core's L2. On an Emerald Rapids with two threads, 512 cubed gains 3 % and 700 cubed 6 % in float32.
// But each thread packs all of A, unless it reads A in place.
#pragma once

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

template <class Traits, class Out>
class ByColumns {
  using Problem = Product<Traits, Out>;

 public:
  // No thread gets over 2 % more than its share. Large products stay with the five loops, where a thread
  // takes over work from one that the system interrupts.
  static bool suits(const GemmProblem& p, int threads) {
    const int64_t each = columns(p.n, threads);
    if (!saves_packing() || threads == 1 || each * threads * 50 > p.n * 51) return false;
    const bool unpacked =
        Engine<Traits, Out>::reads_rows_of_a(p.m, each, p.k, p.a.row_stride, p.a.col_stride);
    return each >= (unpacked ? 128 : 512) && p.m * p.n * p.k <= int64_t{1} << 30;
  }

  ByColumns(int64_t m, int64_t n, int64_t k, int threads)
      : threads_(threads), columns_(columns(n, threads)), engine_(m, columns_, k, 1) {}

  int64_t scratch_bytes() const { return threads_ * round_up(engine_.scratch_bytes(), 4096); }

  void run(const Problem& p, Context& ctx, void* scratch) const {
    parallel(ctx, threads_, [&](int64_t task) {
      const int64_t j = task * columns_;
      if (j >= p.n) return;
      Problem mine = p;
      mine.n = min(columns_, p.n - j), mine.b += j * p.b_cs, mine.o = p.o.at(0, j);
      engine_.run(mine, ctx, static_cast<char*>(scratch) + task * round_up(engine_.scratch_bytes(), 4096));
    });
  }

 private:
  static int64_t columns(int64_t n, int64_t threads) {
    return ceil_div(ceil_div(n, Traits::kNR), threads) * Traits::kNR;
  }

  int threads_;
  int64_t columns_;
  Engine<Traits, Out> engine_;
};

}  // namespace fastgemm::FASTGEMM_ISA
