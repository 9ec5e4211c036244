// The register-blocked micro-kernel, in GCC vector extensions.
//
// A C tile of ROWS x NV vectors stays in registers over all of k. Each step loads NV vectors of B and
// broadcasts ROWS values of A: ROWS * NV multiply-adds for ROWS + NV loads, so that the multiply units,
// not the load units, set the pace. With 32 registers the tile is 14 x 2 (28 accumulators), with 16 it
// is 6 x 2 (12).
#pragma once

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

inline constexpr int kRegisters = kVectorBytes == 64 ? 32 : 16;

// How one unit of A and a vector of units of B are multiplied and added.
struct MultiplyAdd {
  template <class V>
  static FASTGEMM_INLINE V apply(V acc, V a, V b) {
    return acc + a * b;
  }
};
struct PairMultiplyAdd {
  template <class V>
  static FASTGEMM_INLINE V apply(V acc, V a, V b) {
    return add_pair_products(acc, a, b);
  }
};

template <class Traits, int ROWS, int NV>
__attribute__((noinline)) void register_tile(const MicroTile<Traits>& t) {
  using Acc = typename Traits::Acc;
  using Unit = typename Traits::UnitA;
  using V = Vector<Acc>;
  constexpr int N = kLanes<Acc>;
  const Unit* a = t.a;
  const Unit* b = t.b;
  V acc[ROWS][NV] = {};
  Traits::prefetch_start(t);
  for (int64_t g = ceil_div(t.k, Traits::kGroup); g > 0; --g) {
    V b_row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) b_row[j] = load<V>(b + j * N);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const V a_value = broadcast<V>(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = Traits::Multiply::apply(acc[i][j], a_value, b_row[j]);
    }
    a += Traits::kMR;
    b += Traits::kNR;
  }
  Acc* c = t.c;
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i, c += t.ldc) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) store(c + j * N, t.accumulate ? acc[i][j] + load<V>(c + j * N) : acc[i][j]);
  }
}

template <class Traits, int NV, int... I>
FASTGEMM_INLINE void dispatch_rows(const MicroTile<Traits>& t, std::integer_sequence<int, I...>) {
  using Kernel = void (*)(const MicroTile<Traits>&);
  static constexpr Kernel kernels[] = {register_tile<Traits, I + 1, NV>...};
  kernels[t.rows - 1](t);
}

// Traits of a kernel on register_tile: edges get tiles of their own, so that no multiplication is wasted
// on rows that do not exist. Derived adds prefetch_start.
template <class Derived, class Packing, int MR, int NV, class MultiplyOp>
struct RegisterTraits {
  using Element = typename Packing::Element;
  using Acc = Accumulator<Element>;
  using UnitA = typename Packing::Unit;
  using UnitB = UnitA;
  using Multiply = MultiplyOp;
  static constexpr int kMR = MR, kNR = NV * kLanes<Acc>, kGroup = Packing::kGroup;
  static constexpr int kKC = 2048 / sizeof(UnitA) * kGroup;
  static constexpr bool kPartialRows = true;

  static int64_t panel_units_a(int64_t k) { return panel_units<Packing, kMR>(k); }
  static int64_t panel_units_b(int64_t k) { return panel_units<Packing, kNR>(k); }
  static void pack_a(UnitA* panel, const Element* a, int64_t rs, int64_t ks, int64_t rows, int64_t k) {
    pack_panel<Packing, kMR>(panel, a, rs, ks, rows, k);
  }
  static void pack_b(UnitB* panel, const Element* b, int64_t cs, int64_t ks, int64_t cols, int64_t k) {
    pack_panel<Packing, kNR>(panel, b, cs, ks, cols, k);
  }
  static void micro_kernel(const MicroTile<Derived>& t) {
    using Rows = std::make_integer_sequence<int, MR>;
    if (NV > 1 && t.cols <= kLanes<Acc>) {
      dispatch_rows<Derived, 1>(t, Rows{});
    } else {
      dispatch_rows<Derived, NV>(t, Rows{});
    }
  }
  static void enter() {}
  static void leave() {}
};

}  // namespace fastgemm::FASTGEMM_ISA
