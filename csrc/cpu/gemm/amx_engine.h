// The engine of the AMX kernels. A tile unit multiplies so fast that loading the operands is the bottleneck.
// A core can wait for only 16 cache lines at a time, and this is the first limit:
//
//   each part of C, one per thread
//     for jc, ic in it, blocks of <= 1024 columns, <= 2048 rows
//       for pc in K, steps of kc              a k-block: usually there is only one
//         pack B (kc, columns)                along its rows, which are prefetched; later read from L3
//         for i in rows, steps of mc          A block (mc, kc), packed: a quarter of L2, where it must stay
//           for jr in columns, steps of NR    B strip (kc, NR)
//             for k in kc, steps of kDepth    B micro-panel (kDepth, NR): in L1; A takes no space there
//               for ir in mc, steps of MR     micro-kernel
//
// The sums of a strip are kept in L2 from one of its micro-panels to the next. While a tile is multiplied,
// the tile before it is rounded and written, and the next micro-panel of B is prefetched into L2. Each thread
// packs its own operands, so threads synchronize only once, at the start.
#pragma once

#include "cpu/gemm/amx_tile.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {

// One call of a micro-kernel: to = from + a-panel * b-panel, as full tiles. `from` is null for the first step
// along k.
template <class Traits>
struct AmxTile {
  const typename Traits::Unit *a, *b;
  int64_t steps;
  const typename Traits::Acc* from;
  typename Traits::Acc* to;
};

template <class Traits, class Out>
class AmxEngine {
  using Element = typename Traits::Element;
  using Acc = typename Traits::Acc;
  using Unit = typename Traits::Unit;
  using Problem = Product<Traits, Out>;
  static constexpr int64_t MR = Traits::kMR, NR = Traits::kNR, kTile = MR * NR;
  static constexpr int64_t kRows = 2048, kColumns = 1024;  // the most in a block of C
  static constexpr int64_t kDepth = Traits::kKC, kBlockDepth = 4 * kDepth;

 public:
  // Computes the block sizes and the scratch bytes that run() needs for problems of at most this size.
  AmxEngine(int64_t m, int64_t n, int64_t k, int threads) : threads_(threads) {
    choose_grid(m, n);
    rows_ = equal_parts(ceil_div(m, grid_m_), kRows, MR);
    columns_ = equal_parts(ceil_div(n, grid_n_), kColumns, NR);
    kc_ = equal_parts(k, kBlockDepth, Traits::kGroup);
    const int64_t a_panel = Traits::panel_units_a(kc_) * int64_t{sizeof(Unit)};
    mc_ = equal_parts(rows_, max<int64_t>(1, static_cast<int64_t>(cpu_caches().l2) / 4 / a_panel) * MR, MR);
    a_bytes_ = mc_ / MR * a_panel;
    b_bytes_ = columns_ / NR * Traits::panel_units_b(kc_) * int64_t{sizeof(Unit)};
    const int64_t sums = k > kc_ ? rows_ * columns_ : k > kDepth ? mc_ * NR : 0;
    task_bytes_ = a_bytes_ + b_bytes_ + sums * int64_t{sizeof(Acc)};
  }
  int64_t scratch_bytes() const { return threads_ * task_bytes_; }

  void run(const Problem& p, Context& ctx, void* scratch) const {
    auto task = [&](int64_t index) {
      const Range rows = part(p.m, MR, grid_m_, index / grid_n_);
      const Range columns = part(p.n, NR, grid_n_, index % grid_n_);
      char* base = static_cast<char*>(scratch) + index * task_bytes_;
      const Scratch memory{reinterpret_cast<Unit*>(base), reinterpret_cast<Unit*>(base + a_bytes_),
                           reinterpret_cast<Acc*>(base + a_bytes_ + b_bytes_)};
      for (int64_t jc = columns.begin; jc < columns.end; jc += columns_)
        for (int64_t ic = rows.begin; ic < rows.end; ic += rows_)
          if (!block_of_c(p, {ic, min(rows.end, ic + rows_)}, {jc, min(columns.end, jc + columns_)}, memory,
                          ctx))
            return;
    };
    if (threads_ == 1) return task(0);
    parallel(ctx, threads_, task);
  }

 private:
  struct Scratch {
    Unit *a, *b;
    Acc* sums;
  };
  // A block of A, and the strips of B by which it is multiplied.
  struct Block {
    Range rows, columns, k;
    bool first, last;  // whether it is the first (last) k-block
    Acc* sums;         // of the first strip; strips lie `strip_sums` apart
    int64_t strip_sums;
  };
  // A tile whose sums are complete. It is finished while the next one is multiplied.
  struct Complete {
    const Acc* sums = nullptr;
    int64_t rows = 0, cols = 0;
    OutputBlock<Out> o = {};
  };

  // Divides `size` into parts of nearly equal size, at most `most` each, and returns the size of a part: a
  // multiple of `step`.
  static int64_t equal_parts(int64_t size, int64_t most, int64_t step) {
    return round_up(ceil_div(size, max<int64_t>(1, ceil_div(size, most))), step);
  }

  // Gives each thread one part of C. The cost of a part is its multiplications and the packing of its A and
  // B.
  void choose_grid(int64_t m, int64_t n) {
    int64_t best = INT64_MAX;
    for (int64_t rows = 1; rows <= threads_; ++rows) {
      if (threads_ % rows) continue;
      const int64_t part_m = ceil_div(ceil_div(m, MR), rows) * MR;
      const int64_t part_n = ceil_div(ceil_div(n, NR), threads_ / rows) * NR;
      const int64_t cost = part_m * part_n + 64 * (part_m + part_n);
      if (cost < best) best = cost, grid_m_ = rows;
    }
    grid_n_ = threads_ / grid_m_;
  }

  // Returns false if the call was stopped.
  bool block_of_c(const Problem& p, Range rows, Range columns, const Scratch& memory, Context& ctx) const {
    for (int64_t pc = 0; pc < p.k; pc += kc_) {
      const Range k{pc, min(p.k, pc + kc_)};
      pack_b(p, columns, k, memory.b);
      for (int64_t i = rows.begin; i < rows.end; i += mc_) {
        Block block{{i, min(rows.end, i + mc_)}, columns, k, pc == 0, k.end == p.k, memory.sums, 0};
        // With several k-blocks the sums of all strips are kept, because later k-blocks add to them. With a
        // single one, the memory for one strip suffices.
        if (!block.first || !block.last) block.sums += (i - rows.begin) * NR, block.strip_sums = rows_ * NR;
        pack_a(p, block.rows, k, memory.a);
        if (!strips(p, block, memory, ctx)) return false;
      }
    }
    return true;
  }

  static void pack_a(const Problem& p, Range rows, Range k, Unit* packed) {
    for (int64_t i = rows.begin; i < rows.end; i += MR, packed += Traits::panel_units_a(k.size()))
      Traits::pack_a(packed, p.a + i * p.a_rs + k.begin * p.a_cs, p.a_rs, p.a_cs, p.m - i, k.size());
  }

  // Packs the same k-step of all strips before the next k-step.
  static void pack_b(const Problem& p, Range columns, Range k, Unit* packed) {
    const int64_t strip = Traits::panel_units_b(k.size());
    if (p.packed) return pack_weight(p, columns, k, packed, strip);
    for (int64_t kk = k.begin; kk < k.end; kk += Traits::kGroup, packed += Traits::panel_units_b(1))
      for (int64_t j = columns.begin; j < columns.end; j += NR)
        Traits::pack_b(packed + (j - columns.begin) / NR * strip, p.b + kk * p.b_rs + j * p.b_cs, p.b_cs,
                       p.b_rs, p.n - j, min<int64_t>(Traits::kGroup, k.end - kk));
  }

  static void pack_weight(const Problem& p, Range columns, Range k, Unit* packed, int64_t strip) {
    for (int64_t j = columns.begin; j < columns.end; j += NR, packed += strip)
      with_pieces<NR>(p, j, k.begin, k.end,
                      [&](int64_t at, int64_t size, const Element* b, int64_t b_cs, int64_t b_rs) {
                        Unit* panel = packed + Traits::panel_units_b(at - k.begin);
                        Traits::pack_b(panel, b, b_cs, b_rs, p.n - j, size);
                      });
  }

  bool strips(const Problem& p, const Block& block, const Scratch& memory, Context& ctx) const {
    alignas(64) Acc tiles[2][kTile];
    Complete complete;
    Pace pace;
    Traits::enter();
    for (int64_t jr = 0; jr < ceil_div(block.columns.size(), NR); ++jr) {
      if (pace.due(block.rows.size() * NR * block.k.size())) {
        Traits::leave();  // stopped() may run other code that uses the tile unit
        if (stopped(ctx)) return false;
        Traits::enter();
      }
      multiply_strip(p, block, memory, jr, tiles, complete);
    }
    Traits::leave();
    finish_rows(p, complete, 0, MR);
    return true;
  }

  void multiply_strip(const Problem& p, const Block& block, const Scratch& memory, int64_t jr,
                      Acc (*tiles)[kTile], Complete& complete) const {
    const int64_t depth = block.k.size(), count = ceil_div(block.rows.size(), MR);
    const int64_t j = block.columns.begin + jr * NR;
    const Unit* strip = memory.b + jr * Traits::panel_units_b(depth);
    for (int64_t k = 0; k < depth; k += kDepth) {
      const bool last = block.last && k + kDepth >= depth;
      const Unit* b = strip + Traits::panel_units_b(k);
      const int64_t steps = ceil_div(min(kDepth, depth - k), Traits::kGroup);
      const int64_t rows = ceil_div(MR, steps), lines = ceil_div(NR, count);  // done in each k-step
      const Unit* ahead = b + Traits::panel_units_b(kDepth);
      for (int64_t ir = 0; ir < count; ++ir) {
        Acc* sums = block.sums + jr * block.strip_sums + ir * kTile;
        AmxTile<Traits> t{memory.a + ir * Traits::panel_units_a(depth) + Traits::panel_units_a(k), b, steps,
                          block.first && k == 0 ? nullptr : sums, sums};
        if (last) t.to = tiles[complete.sums == tiles[0]];
        Traits::micro_kernel(
            t, [&](int64_t step) __attribute__((always_inline)) {
              finish_rows(p, complete, step * rows, rows);
              for (int64_t i = 0; i < lines; ++i, ahead += kTileRows) __builtin_prefetch(ahead, 0, 2);
            });
        complete = {};
        if (last) {
          const int64_t i = block.rows.begin + ir * MR;
          complete = {t.to, min(MR, block.rows.end - i), min(NR, block.columns.end - j), p.o.at(i, j)};
        }
      }
    }
  }

  // Rounds and writes `count` rows of a tile, and prefetches the rows of C two further down.
  static FASTGEMM_INLINE void finish_rows(const Problem& p, const Complete& c, int64_t row, int64_t count) {
    count = min(count, c.rows - row);
    if (count <= 0) return;
    for (int64_t i = row + 2; i < row + 2 + count; ++i) {
      __builtin_prefetch(c.o.out + i * c.o.ld, 1);
      __builtin_prefetch(c.o.out + i * c.o.ld + NR - 1, 1);
    }
    store_tile(c.sums + row * NR, NR, static_cast<int>(count), static_cast<int>(c.cols), p.alpha, p.beta,
               c.o.at(row, 0));
  }

  int threads_;
  int64_t grid_m_ = 1, grid_n_ = 1;
  int64_t rows_, columns_, kc_, mc_;
  int64_t a_bytes_, b_bytes_, task_bytes_;
};

}  // namespace fastgemm::FASTGEMM_ISA
