// Small products whose operands are read in place.
//
// A 64 x 64 x 64 product takes 5 us, and packing its operands takes another 2. Here nothing of A is packed. B
// is not packed either, unless its columns are contiguous or end inside a vector. In that case each thread
// packs one micro-panel at a time for itself. There is at most one fork, instead of two.
#pragma once

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

template <class Traits>
class InPlace {
  using Acc = typename Traits::Acc;
  using Problem = Product<Traits, Acc>;
  using Unit = typename Traits::UnitB;
  static constexpr int64_t MR = Traits::kMR, NR = Traits::kNR;

 public:
  // There is one pass over k, so that C is written once. The problem must also be small: in larger ones, rows
  // that were not packed would evict each other from the sets of the L1 cache. Two threads save a fork, which
  // on an Emerald Rapids is worth 19 % at 200, 8 % at 256 and 3 % at 300.
  static bool suits(int64_t m, int64_t n, int64_t k, int threads) {
    const int64_t side = threads > 1 && saves_packing() ? 320 : 192;
    return k <= Traits::kKC && (m * n * k <= side * side * side || n <= 2 * NR);
  }

  InPlace(int64_t m, int64_t n, int64_t k, int threads) : threads_(threads) {
    const int64_t panels = ceil_div(n, NR);
    grid_n_ = static_cast<int>(min<int64_t>(threads, panels));
    while (threads_ % grid_n_ || (panels % grid_n_ && m >= 2 * MR * threads_ && grid_n_ > 1)) --grid_n_;
    scratch_bytes_ = round_up(Traits::panel_units_b(k) * int64_t{sizeof(Unit)}, 64);
  }
  int64_t scratch_bytes() const { return threads_ * scratch_bytes_; }

  void run(const Problem& p, Context& ctx, void* scratch) const {
    auto cell = [&](int64_t task) {
      const Range rows = part(p.m, MR, threads_ / grid_n_, task / grid_n_);
      const Range columns = part(p.n, NR, grid_n_, task % grid_n_);
      compute(p, rows, columns, reinterpret_cast<Unit*>(static_cast<char*>(scratch) + task * scratch_bytes_),
              ctx);
    };
    if (threads_ == 1) return cell(0);
    parallel(ctx, threads_, cell);
  }

 private:
  static void compute(const Problem& p, Range rows, Range columns, Unit* panel, Context& ctx) {
    const bool plain = p.alpha == Acc{1} && p.beta == Acc{0} && !p.o.finishes;
    alignas(64) Acc buffer[MR * NR];
    Pace pace;
    for (int64_t j = columns.begin; j < columns.end; j += NR) {
      MicroTile<Traits> t{};
      t.k = p.k;
      t.cols = static_cast<int>(min(NR, p.n - j));
      t.a_rs = p.a_rs, t.a_ks = p.a_cs;
      const bool packed = p.b_cs != 1 || t.cols < NR;
      if (packed) Traits::pack_b(panel, p.b + j * p.b_cs, p.b_cs, p.b_rs, p.n - j, p.k);
      t.b = packed ? panel : p.b + j;
      t.b_ks = packed ? NR : p.b_rs;
      const bool direct = plain && t.cols == NR;
      for (int64_t i = rows.begin; i < rows.end; i += MR) {
        if (pace.due(MR * NR * p.k) && stopped(ctx)) return;
        const auto o = p.o.at(i, j);
        t.rows = static_cast<int>(min(MR, rows.end - i));
        t.a = p.a + i * p.a_rs;
        t.c = direct ? o.out : buffer;
        t.ldc = direct ? o.ld : NR;
        Traits::template micro_kernel<Reads::in_place>(t);
        if (!direct) store_tile(buffer, NR, t.rows, t.cols, p.alpha, p.beta, o);
      }
    }
  }

  int threads_, grid_n_;
  int64_t scratch_bytes_;
};

}  // namespace fastgemm::FASTGEMM_ISA
