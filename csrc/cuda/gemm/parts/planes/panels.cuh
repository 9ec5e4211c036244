// Divides a product whose planes would take too much memory into panels of C. The panels are computed one
// after another in the same workspace, and neighbouring panels use the same planes of one operand.
//
//               n                     outer operand: A (fewer bytes), its planes are made once for each
//        j=0   j=1   j=2              row of panels; inner operand: B, its planes are made for each panel
//      +-----+-----+-----+
//  i=0 |  0  |  1  |  2  |            order of the panels: 0, 1, 2, 3, ...
//    m +-----+-----+-----+
//  i=1 |  3  |  4  |  5  |
//      +-----+-----+-----+
#pragma once

#include "cuda/gemm/parts/planes/plan.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Which operands are cut for a panel. The other operand keeps the planes of the panel before.
struct Cuts {
  bool a, b;
};

// The planes of the outer operand are kept for a whole row of panels. If all of its planes fit beside a part
// of the inner operand's, no element is cut twice.
struct Panels {
  bool a_is_outer;
  Split outer, inner;  // tiles

  // The least number of stages of k whose planes exist at the same time.
  template <class S, class T>
  static int64_t stages(const Gemm<T>& g) {
    const Plan plan = Plan::of<S>(g, 1);
    return plan.stages(0);
  }
  // The bytes of the planes of all of m and n, for this number of stages.
  template <class S, class T>
  static int64_t bytes(const Gemm<T>& g) {
    return (ceil_div(g.m, S::kM) * S::kImageA + ceil_div(g.n, S::kN) * S::kImageB) * stages<S>(g);
  }
  template <class S, class T>
  static Panels of(const Gemm<T>& g, int batch) {
    const int64_t tiles_m = ceil_div(g.m, S::kM), tiles_n = ceil_div(g.n, S::kN);
    const int64_t a = S::kImageA * stages<S>(g), b = S::kImageB * stages<S>(g);  // bytes of a tile's planes
    const bool a_is_outer = tiles_m * a <= tiles_n * b;
    const int64_t outer_tiles = a_is_outer ? tiles_m : tiles_n, inner_tiles = a_is_outer ? tiles_n : tiles_m;
    const int64_t room = most_plane_bytes();
    if (batch > 1 || bytes<S>(g) <= room) return {a_is_outer, {outer_tiles, 1}, {inner_tiles, 1}};
    const int64_t outer = a_is_outer ? a : b, inner = a_is_outer ? b : a;
    const auto parts = [](int64_t tiles, int64_t most) {
      return int(ceil_div(tiles, std::max(most, int64_t{1})));
    };
    Panels p{a_is_outer, {outer_tiles, 1}, {inner_tiles, 1}};
    p.outer.parts = parts(outer_tiles, std::min(room / 8 * 7, room - inner) / outer);
    p.inner.parts = parts(inner_tiles, (room - p.outer.length(0) * outer) / inner);
    return p;
  }

  Cuts cuts(int j) const { return {!a_is_outer || j == 0, a_is_outer || j == 0}; }

  // Where panel (i, j) begins.
  template <class S>
  int64_t row(int i, int j) const {
    return (a_is_outer ? outer.begin(i) : inner.begin(j)) * S::kM;
  }
  template <class S>
  int64_t column(int i, int j) const {
    return (a_is_outer ? inner.begin(j) : outer.begin(i)) * S::kN;
  }

  template <class S, class T>
  Gemm<T> at(const Gemm<T>& all, int i, int j) const {
    const int of_m = a_is_outer ? i : j, of_n = a_is_outer ? j : i;
    const Split &m = a_is_outer ? outer : inner, &n = a_is_outer ? inner : outer;
    const int64_t row = this->row<S>(i, j), column = this->column<S>(i, j);
    Gemm<T> g = all;
    g.m = std::min(all.m - row, m.length(of_m) * S::kM),
    g.n = std::min(all.n - column, n.length(of_n) * S::kN);
    g.a.data += row * all.a.row_stride, g.b.data += column * all.b.col_stride;
    Result<T>& r = g.result;
    r.out = static_cast<char*>(r.out) + (row * r.row_stride + column) * r.out_bytes();
    r.c = static_cast<const char*>(r.c) + (row * r.c_row_stride + column * r.c_col_stride) * r.out_bytes();
    return g;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
