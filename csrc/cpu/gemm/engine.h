// The packed engine: five loops around a micro-kernel (Goto and van de Geijn 2008, Van Zee 2015).
//
//   for pc in K, steps of kc          a k-block: one update of C
//     for jc in N, steps of nc        B block (kc, nc), packed, in L3
//       for ic in M, steps of mc      A block (mc, kc), packed, in L2
//         for jr in nc, steps of NR   B micro-panel (kc, NR)
//           for ir in mc, steps of MR A micro-panel (MR, kc): micro-kernel, C tile (MR, NR) in registers
//
// The order of the two inner loops is exchanged within a group of B micro-panels that fits in L2 beside the A
// block. Consecutive tiles of C then lie side by side. If they lay one below the other, each row of a tile
// would be in another page: this costs TLB entries, and the prefetchers would start again for each row.
//
// Levels 5 and 6 and the dot-product kernels use this one engine with different Traits (AMX has its own,
// amx_engine.h):
//
// clang-format off
//   struct Traits {
//     using Element = ...;                       // of a and b in memory: double, float, Half, BFloat16, int8_t, uint8_t, int16_t, uint32_t, uint64_t
//     using Acc = Accumulator<Element>;          // double, float; uint32_t or uint64_t for integers (wrapping)
//     using UnitA, UnitB = ...;                  // what a packed panel consists of
//     static constexpr int kMR, kNR;             // the micro-kernel's C tile
//     static constexpr int kGroup;               // k-blocks are multiples of it; packing pads the last one
//     static constexpr int kKC;                  // depth of a k-block
//     static int64_t k_depth();                  // optional: the depth, if it depends on the processor
//     static constexpr int kPackDepth;           // optional: if rows of B are contiguous, all panels of B are
//                                                // packed in steps of this depth
//     static int64_t panel_units_a(int64_t k);   // size of a panel of depth k; a kernel that needs sums of rows
//     static int64_t panel_units_b(int64_t k);   // or columns stores them behind the panel
//     static void pack_a(UnitA*, const Element*, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k);
//     static void pack_b(UnitB*, const Element*, int64_t col_stride, int64_t k_stride, int64_t cols, int64_t k);
//                                                // rows, cols: how many are left; may exceed kMR, kNR
//     static constexpr bool kReadsRowsOfA;       // optional: the micro-kernel may read contiguous rows of A in place
//     static int64_t unpacked_columns();         // then: it does up to so many columns of C
//     static constexpr int kMostOfPart;          // optional: sums of parts of k of at most this size are scaled
//                                                // (core/part_scales.h). The micro-kernel computes one part
//     static void micro_kernel(const MicroTile<Traits>&);
//   };
// clang-format on
//
// Panels start at multiples of 64 bytes if panel_units_* returns whole cache lines.
#pragma once

#include "core/context.h"
#include "core/cpu_features.h"
#include "cpu/gemm/epilogue.h"
#include "cpu/gemm/pack.h"
#include "cpu/gemm/parallel.h"
#include "cpu/gemm/weight_pieces.h"

namespace fastgemm::FASTGEMM_ISA {

// Where a tile reads its operands: in packed panels; both in place, with the strides of the tile; or rows of
// A in place, whose numbers along k make a unit, and a panel of B.
enum class Reads { panels, in_place, rows_of_a };

// One call of a micro-kernel: c(rows, kNR) = or += a-panel * b-panel.
template <class Traits>
struct MicroTile {
  const typename Traits::UnitA* a;
  const typename Traits::UnitB* b;
  int64_t k;       // depth in elements; the panels hold ceil(k / kGroup) groups
  int rows, cols;  // of the result. Exactly `rows` rows are written, with up to kNR columns
  typename Traits::Acc* c;
  int64_t ldc;
  bool accumulate;  // += instead of =
  // Strides of operands that are read in place, without packing (in_place.h and panel_dot.h).
  int64_t a_rs, a_ks, b_ks;
  int64_t next_columns = 0;  // how far behind a row of b lies what is prefetched into L2; 0: the row itself
  int64_t row_bytes = 0;     // if not 0: of rows of a, which are read in place, and are contiguous
  const float *row_scales, *column_scales;  // of a part of k (Traits::kMostOfPart)
};

// One 2-D product with typed pointers. Element (i, j) of a lies at a[i * a_rs + j * a_cs].
template <class Traits, class Out>
struct Product {
  using Element = typename Traits::Element;
  using Acc = typename Traits::Acc;
  int64_t m, n, k;
  const Element* a;
  int64_t a_rs, a_cs;
  const Element* b;
  int64_t b_rs, b_cs;
  OutputBlock<Out> o;
  Scale<Acc> alpha, beta;
  // For complex operands: whether to multiply their conjugates.
  bool conjugates_a = false, conjugates_b = false;
  const PackedWeight* packed = nullptr;   // if given, b points to its codes (weight_pieces.h)
  BlockScales row_scales, column_scales;  // for each part of k, core/part_scales.h
};

// With fewer multiply-adds, starting threads costs more time than they save.
inline constexpr int64_t kWorthAFork = int64_t{96} * 96 * 96;

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
// Divides `total` into `parts` ranges of multiples of `step`, whose sizes differ by at most one step, and
// returns range number `index`.
inline Range part(int64_t total, int64_t step, int64_t parts, int64_t index) {
  const int64_t steps = ceil_div(total, step);
  return {min(total, steps * index / parts * step), min(total, steps * (index + 1) / parts * step)};
}

template <class Traits, class Out>
class Engine {
  using Element = typename Traits::Element;
  using Acc = typename Traits::Acc;
  using UnitA = typename Traits::UnitA;
  using UnitB = typename Traits::UnitB;
  using Problem = Product<Traits, Out>;
  static constexpr int64_t MR = Traits::kMR, NR = Traits::kNR;
  // If C has the accumulator's type, it holds the partial sums between k-blocks. Otherwise they have a buffer
  // of their own, so that the result is rounded only once.
  static constexpr bool kOwnSums = !std::is_same_v<Acc, Out>;
  // Rows are distributed over threads in multiples of this number. A tile with fewer rows is nearly as fast.
  // With whole tiles of 14 rows, one of two threads would get 518 of 1024.
  static constexpr int64_t kRowStep = 4;

 public:
  // Packing A costs about as much as 8 columns, or 20 if A is not in the caches. Up to unpacked_columns(),
  // rows that are contiguous are read in place, unless they lie at about multiples of 4 KiB, where all rows
  // of a tile share the few lines of an L1 set.
  static bool reads_rows_of_a(int64_t m, int64_t n, int64_t k, int64_t a_rs, int64_t a_cs) {
    if constexpr (requires { requires Traits::kReadsRowsOfA; }) {
      if (m == 1 || n > Traits::unpacked_columns() || a_cs != 1 || k < Traits::kGroup) return false;
      const int64_t beyond = a_rs * int64_t{sizeof(Element)} & 4095;
      return min(beyond, 4096 - beyond) >= 64;
    }
    return false;
  }

  // Computes the block sizes and the scratch bytes that run() needs for problems of at most this size.
  Engine(int64_t m, int64_t n, int64_t k, int threads) : threads_(threads) {
    k_blocks_ = max<int64_t>(1, ceil_div(k, k_depth()));
    kc_ = round_up(ceil_div(k, k_blocks_), depth_step());
    choose_grid(m, n);
    const int64_t a_panel = a_panel_bytes(), b_panel = b_panel_bytes();
    // A group of B panels and the A block take a quarter of L2 each. The other half is for C and for lines
    // that are being prefetched.
    const int64_t quarter = static_cast<int64_t>(cpu_caches().l2) / 4;
    group_ = max<int64_t>(1, quarter / b_panel);
    // Because rows are distributed in steps of kRowStep, a cell may need more panels than m / grid_m_ rows
    // fill.
    const int64_t cell_panels = ceil_div(ceil_div(ceil_div(m, kRowStep), grid_m_) * kRowStep, MR);
    row_blocks_ = ceil_div(cell_panels, max<int64_t>(1, quarter / a_panel));
    if (threads > 1)
      row_blocks_ = max(row_blocks_, min<int64_t>(4, cell_panels / 4));  // to balance the threads
    mc_ = MR * ceil_div(cell_panels, row_blocks_);
    // A few MiB of packed B. For several threads, all of K is packed at once if it fits, which takes one
    // packing phase and one fork. A single thread packs one k-block at a time, which may fit in L2.
    constexpr int64_t kBudget = 8 << 20;
    nc_ = min(round_up(n, NR), NR * max<int64_t>(1, kBudget / b_panel));
    packed_k_blocks_ =
        threads == 1 ? 1 : min(k_blocks_, max<int64_t>(1, kBudget / (ceil_div(nc_, NR) * b_panel)));
    a_bytes_ = round_up(mc_ / MR * a_panel, 64);
    b_bytes_ = round_up(packed_k_blocks_ * (nc_ / NR) * b_panel, 64);
    sums_bytes_ = kOwnSums && k_blocks_ > 1 ? round_up(m, MR) * nc_ * int64_t{sizeof(Acc)} : 0;
  }
  int64_t scratch_bytes() const { return threads_ * a_bytes_ + b_bytes_ + sums_bytes_; }

  // Runs the five loops. With one thread everything runs in the caller, so run() may itself be part of a
  // parallel task.
  void run(const Problem& p, Context& ctx, void* scratch) const {
    char* base = static_cast<char*>(scratch);
    UnitB* packed_b = reinterpret_cast<UnitB*>(base + threads_ * a_bytes_);
    Acc* sums = reinterpret_cast<Acc*>(base + threads_ * a_bytes_ + b_bytes_);
    for (int64_t jc = 0; jc < p.n; jc += nc_) {
      const Range columns{jc, min(p.n, jc + nc_)};
      for (int64_t block = 0; block < k_blocks_; block += packed_k_blocks_) {
        const Range k_blocks{block, min(k_blocks_, block + packed_k_blocks_)};
        if (stopped(ctx)) return;
        const int64_t panels = ceil_div(columns.size(), NR) * k_blocks.size();
        const int64_t shares = threads_ == 1 ? 1 : min<int64_t>(panels, 4 * threads_);
        deal(ctx, shares, [&](int64_t share, int64_t) {
          pack_b(p, columns, k_blocks, packed_b, part(panels, 1, shares, share));
        });
        deal(ctx, grid_m_ * row_blocks_ * grid_n_, [&](int64_t cell, int64_t task) {
          UnitA* packed_a = reinterpret_cast<UnitA*>(base + task * a_bytes_);
          compute(p, columns, k_blocks, packed_a, packed_b, sums, cell, ctx);
        });
      }
    }
  }

 private:
  // Calls body(item, task) for all items. A thread that has finished an item takes the next one. So all
  // threads end at about the same time, even if the system interrupts one of them for a while.
  template <class Body>
  FASTGEMM_INLINE void deal(Context& ctx, int64_t items, Body&& body) const {
    int64_t next = 0;
    auto work = [&](int64_t task) {
      for (int64_t i; (i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < items;) body(i, task);
    };
    if (threads_ == 1) return work(0);
    parallel(ctx, threads_, work);
  }

  static int64_t k_depth() {
    if constexpr (requires { Traits::k_depth(); }) return Traits::k_depth();
    return Traits::kKC;
  }
  static int64_t depth_step() {
    if constexpr (requires { Traits::kMostOfPart; }) return Traits::kMostOfPart;
    return max<int64_t>(Traits::kGroup, 8);
  }
  int64_t pack_depth() const {
    if constexpr (requires { Traits::kPackDepth; }) return Traits::kPackDepth;
    return kc_;
  }
  static bool reads_rows_of_a(const Problem& p) { return reads_rows_of_a(p.m, p.n, p.k, p.a_rs, p.a_cs); }

  static int64_t panel_bytes(int64_t units, int64_t unit) { return round_up(units * unit, 64); }
  int64_t a_panel_bytes() const { return panel_bytes(Traits::panel_units_a(kc_), sizeof(UnitA)); }
  int64_t b_panel_bytes() const { return panel_bytes(Traits::panel_units_b(kc_), sizeof(UnitB)); }
  int64_t a_panel_stride() const { return a_panel_bytes() / int64_t{sizeof(UnitA)}; }
  int64_t b_panel_stride() const { return b_panel_bytes() / int64_t{sizeof(UnitB)}; }
  Range k_range(const Problem& p, int64_t block) const {
    return {min(p.k, block * kc_), min(p.k, (block + 1) * kc_)};
  }

  // Divides C into a grid of cells, one per thread. The cost of a cell is its multiplications, and the
  // packing of its rows of A, which every cell of a grid row repeats. Packing an element takes the time of
  // about 8 multiply-adds.
  void choose_grid(int64_t m, int64_t n) {
    int64_t best = INT64_MAX;
    for (int64_t rows = 1; rows <= threads_; ++rows) {
      if (threads_ % rows) continue;
      const int64_t cell_m = ceil_div(ceil_div(m, kRowStep), rows) * kRowStep;
      const int64_t cell_n = ceil_div(ceil_div(n, NR), threads_ / rows) * NR;
      const int64_t cost = cell_m * cell_n + 8 * (cell_m + cell_n);
      if (cost <= best) best = cost, grid_m_ = rows;
    }
    grid_n_ = threads_ / grid_m_;
  }

  void pack_b(const Problem& p, Range columns, Range k_blocks, UnitB* packed, Range mine) const {
    const int64_t panels = ceil_div(columns.size(), NR);
    const int64_t depth = p.b_cs == 1 ? pack_depth() : kc_;
    for (int64_t part = 0; part < kc_; part += depth) {
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        const Range block = k_range(p, k_blocks.begin + i / panels);
        const Range k{block.begin + part, min(block.end, block.begin + part + depth)};
        if (part > 0 && k.size() <= 0) continue;  // the first part always sets the sums of columns
        const int64_t j = columns.begin + i % panels * NR;
        UnitB* panel = packed + i * b_panel_stride() + part / Traits::kGroup * NR;
        with_pieces<NR>(p, j, k.begin, k.end,
                        [&](int64_t at, int64_t size, const Element* b, int64_t b_cs, int64_t b_rs) {
                          Traits::pack_b(panel + (at - k.begin) / Traits::kGroup * NR, b, b_cs, b_rs, p.n - j,
                                         size);
                        });
        if constexpr (kIsComplex<Element>) {
          if (p.conjugates_b) Traits::template conjugate<NR>(panel, k.size());
        }
      }
    }
  }

  void compute(const Problem& p, Range columns, Range k_blocks, UnitA* packed_a, const UnitB* packed_b,
               Acc* sums, int64_t cell, Context& ctx) const {
    const int64_t panels = ceil_div(columns.size(), NR), row_cell = cell / grid_n_;
    const Range cell_rows = part(p.m, kRowStep, grid_m_, row_cell / row_blocks_);
    const Range block_rows = part(cell_rows.size(), MR, row_blocks_, row_cell % row_blocks_);
    const Range rows{cell_rows.begin + block_rows.begin, cell_rows.begin + block_rows.end};
    const Range mine = part(panels, 1, grid_n_, cell % grid_n_);
    if (mine.size() == 0) return;
    for (int64_t block = k_blocks.begin; block < k_blocks.end; ++block) {
      const Range k = k_range(p, block);
      const UnitB* b = packed_b + (block - k_blocks.begin) * panels * b_panel_stride();
      if (stopped(ctx)) return;
      for (int64_t i = rows.begin; i < rows.end && !reads_rows_of_a(p); i += MR) {
        UnitA* panel = packed_a + (i - rows.begin) / MR * a_panel_stride();
        Traits::pack_a(panel, p.a + i * p.a_rs + k.begin * p.a_cs, p.a_rs, p.a_cs, p.m - i, k.size());
        if constexpr (kIsComplex<Element>) {
          if (p.conjugates_a) Traits::template conjugate<MR>(panel, k.size());
        }
      }
      macro_kernel(p, {rows, columns, mine, k, block == 0, block == k_blocks_ - 1}, packed_a, b, sums, ctx);
    }
  }

  struct Block {
    Range rows, columns;  // of C; all columns of the packed block of B
    Range panels;         // this cell's panels of these columns
    Range k;
    bool first, last;  // whether it is the first (last) k-block
  };

  // The loops jr and ir: computes all C tiles of an A block times a B block.
  void macro_kernel(const Problem& p, const Block& block, const UnitA* packed_a, const UnitB* packed_b,
                    Acc* sums, Context& ctx) const {
    const int64_t a_panels = ceil_div(block.rows.size(), MR);
    Pace pace;
    for (int64_t group = block.panels.begin; group < block.panels.end; group += group_) {
      const int64_t group_end = min(block.panels.end, group + group_);
      for (int64_t ir = 0; ir < a_panels; ++ir) {
        if (pace.due(MR * (group_end - group) * NR * block.k.size()) && stopped(ctx)) return;
        for (int64_t jr = group; jr < group_end; ++jr) {
          const int64_t i = block.rows.begin + ir * MR, j = block.columns.begin + jr * NR;
          MicroTile<Traits> t;
          t.a = packed_a + ir * a_panel_stride();
          t.b = packed_b + jr * b_panel_stride();
          t.k = block.k.size();
          if (reads_rows_of_a(p)) {
            t.a = reinterpret_cast<const UnitA*>(p.a + i * p.a_rs + block.k.begin);
            t.row_bytes = p.a_rs * int64_t{sizeof(Element)};
          }
          t.rows = static_cast<int>(min(MR, block.rows.end - i));
          t.cols = static_cast<int>(min(NR, block.columns.end - j));
          micro_tile(p, t, i, j, block, sums);
        }
      }
    }
  }

  // Calls the micro-kernel, for each part of k if the sums of parts are scaled.
  static FASTGEMM_INLINE void multiply(const Problem& p, MicroTile<Traits>& t, int64_t i, int64_t j,
                                       const Block& block) {
    if constexpr (requires { Traits::kMostOfPart; }) {
      const int64_t part = p.row_scales.block_cols, end = t.k, first = block.k.begin / part;
      t.row_scales = static_cast<const float*>(p.row_scales.data) + first * p.row_scales.col_stride + i;
      t.column_scales =
          static_cast<const float*>(p.column_scales.data) + first * p.column_scales.col_stride + j;
      for (int64_t at = 0; at < end; at += part) {
        t.k = min(part, end - at);
        Traits::micro_kernel(t);
        t.accumulate = true;
        t.a += part / Traits::kGroup * MR, t.b += part / Traits::kGroup * NR;
        t.row_scales += p.row_scales.col_stride, t.column_scales += p.column_scales.col_stride;
      }
    } else {
      Traits::micro_kernel(t);
    }
  }

  // Computes one C tile: directly in C if nothing else must be done to it, otherwise in a buffer that the
  // epilogue stores.
  void micro_tile(const Problem& p, MicroTile<Traits>& t, int64_t i, int64_t j, const Block& block,
                  Acc* sums) const {
    const int rows = t.rows;
    OutputBlock<Out> o = p.o.at(i, j);
    if constexpr (kOwnSums) {
      if (k_blocks_ > 1) {
        t.ldc = nc_;
        t.c = sums + i * nc_ + (j - block.columns.begin);
        t.accumulate = !block.first;
        multiply(p, t, i, j, block);
        if (block.last) store_tile(t.c, t.ldc, rows, t.cols, p.alpha, p.beta, o);
        return;
      }
    } else {
      const bool adds_c = p.beta != Scale<Acc>{0} && (o.finishes ? block.last : block.first);
      const bool plain = p.alpha == Scale<Acc>{1} && !adds_c && !(o.finishes && block.last);
      if (plain && t.cols == NR) {
        t.ldc = o.ld;
        t.c = o.out;
        t.accumulate = !block.first;
        return multiply(p, t, i, j, block);
      }
    }
    alignas(64) Acc tile[MR * NR];
    t.ldc = NR;
    t.c = tile;
    t.accumulate = false;
    multiply(p, t, i, j, block);
    if (o.finishes) return finish_tile(tile, rows, t.cols, p, block, o);
    if (!block.first) {  // only if C holds the sums of the earlier k-blocks
      o.c = o.out;
      o.c_rs = o.ld;
      o.c_cs = 1;
    }
    store_tile(tile, NR, rows, t.cols, p.alpha, block.first ? p.beta : Scale<Acc>{1}, o);
  }

  // The same for a problem with an epilogue, which is applied once, to the sum of all k-blocks.
  static void finish_tile(Acc* tile, int rows, int cols, const Problem& p, const Block& block,
                          OutputBlock<Out> o) {
    if constexpr (!kOwnSums) {
      if (!block.last) {
        const Scale<Acc> others = block.first ? 0 : 1;
        return store_tile(tile, NR, rows, cols, p.alpha, others,
                          OutputBlock<Out>{o.out, o.ld, 1, o.out, o.ld});
      }
      if (!block.first) {
        for (int i = 0; i < rows; ++i)
          for (int j = 0; j < cols; ++j) tile[i * NR + j] = p.alpha * tile[i * NR + j] + o.out[i * o.ld + j];
        return store_tile(tile, NR, rows, cols, Scale<Acc>{1}, p.beta, o);
      }
    }
    store_tile(tile, NR, rows, cols, p.alpha, p.beta, o);
  }

  int threads_;
  int64_t grid_m_ = 1, grid_n_ = 1;
  int64_t k_blocks_, packed_k_blocks_, kc_, mc_, nc_;
  int64_t group_, row_blocks_;  // micro-panels of B in a group, and blocks of rows in a cell
  int64_t a_bytes_, b_bytes_, sums_bytes_;
};

}  // namespace fastgemm::FASTGEMM_ISA
