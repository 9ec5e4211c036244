// Packing: copies a block of an operand into micro-panels, the order in which the micro-kernel reads it.
//
// A micro-panel is W rows of A (or W columns of B) wide and k deep: unit [g * W + w] holds k-group g of
// row w. Reading it is one sequential stream: no TLB misses, no lines fighting for one cache set, and
// any stride of the operand, transposition and type conversion are paid here once instead of per use.
//
// A k-group is what one multiply instruction consumes of one row: one element for an fma, two int16 for
// pmaddwd. A Packing says how elements become units:
//   Element, Unit, kGroup
//   Vector<Unit> along_k(const Element* p)              lanes: successive k-groups, p contiguous in k
//   Vector<Unit> along_w(const Element* p, int64_t sk)  lanes: successive rows, p contiguous in w
//   Unit one(const Element* p, int64_t sk, int valid)   one k-group, elements from `valid` on are zero
#pragma once

#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {

// One element a unit, in the accumulator's type.
template <class T>
struct Widened {
  using Element = T;
  using Unit = Accumulator<T>;
  static constexpr int kGroup = 1;

  static FASTGEMM_INLINE Vector<Unit> along_k(const T* p) { return load_widened(p); }
  static FASTGEMM_INLINE Vector<Unit> along_w(const T* p, int64_t) { return load_widened(p); }
  static FASTGEMM_INLINE Unit one(const T* p, int64_t, int64_t) { return widen(*p); }
};

// Two int16 a unit, or two int8 or uint8 that are extended to them.
template <class T>
struct Int16Pairs {
  using Element = T;
  using Unit = uint32_t;
  static constexpr int kGroup = 2;

  static FASTGEMM_INLINE Vector<Unit> along_k(const T* p) {
    if constexpr (sizeof(T) == 2) {
      return load<Vector<Unit>>(p);
    } else {
      return (Vector<Unit>)load_extended<int16_t>(p);
    }
  }
  static FASTGEMM_INLINE Vector<Unit> along_w(const T* p, int64_t sk) {
    return (load_widened(p) & 0xffffu) | (load_widened(p + sk) << 16);
  }
  static FASTGEMM_INLINE Unit one(const T* p, int64_t sk, int64_t valid) {
    return (widen(p[0]) & 0xffffu) | (valid > 1 ? widen(p[sk]) << 16 : 0u);
  }
};

// Units of a panel k deep. A panel whose width is no multiple of the vector is written with whole
// vectors, each overlapping the next row; the last one needs room.
template <class Packing, int W>
constexpr int64_t panel_units(int64_t k) {
  return ceil_div(k, Packing::kGroup) * W +
         (W % kLanes<typename Packing::Unit> ? kLanes<typename Packing::Unit> : 0);
}

// Element w, kk of the source lies at src[w * sw + kk * sk]. `width` rows exist from src on: the panel
// takes W of them, or all and fills up with zeros.
template <class Packing, int W>
void pack_panel(typename Packing::Unit* dst, const typename Packing::Element* src, int64_t sw, int64_t sk,
                int64_t width, int64_t k) {
  using Unit = typename Packing::Unit;
  using V = Vector<Unit>;
  constexpr int N = kLanes<Unit>, G = Packing::kGroup;
  const int count = static_cast<int>(min<int64_t>(W, width));
  const int64_t full = k / G, groups = ceil_div(k, G);
  int64_t g = 0;
  if (sw == 1 && width >= round_up(W, N)) {
    for (; g < full; ++g)
      for (int w = 0; w < W; w += N) store(dst + g * W + w, Packing::along_w(src + g * G * sk + w, sk));
  } else if (sk == 1) {
    for (; g + N <= full; g += N) {
      // Downwards, so that a vector that reaches into the next row is overwritten by that row's own.
      for (int w = (W - 1) / N * N; w >= 0; w -= N) {
        V block[N];
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i)
          block[i] = w + i < count ? Packing::along_k(src + (w + i) * sw + g * G) : V{};
        transpose(block);
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) store(dst + (g + i) * W + w, block[i]);
      }
    }
  }
  for (; g < groups; ++g)
    for (int w = 0; w < W; ++w)
      dst[g * W + w] = w < count ? Packing::one(src + w * sw + g * G * sk, sk, k - g * G) : Unit{};
}

// The Traits (engine.h) of a micro-kernel that reads panels of this Packing; what is left to add is
// micro_kernel. A k-block is deep enough that reading and writing C does not count, and its B micro-panel
// of 32 columns (64 KiB) still fits the L2 cache beside the A block.
template <class P, int MR, int NR>
struct PanelTraits {
  using Element = typename P::Element;
  using Acc = Accumulator<Element>;
  using UnitA = typename P::Unit;
  using UnitB = typename P::Unit;
  static constexpr int kMR = MR, kNR = NR, kGroup = P::kGroup;
  static constexpr int kKC = 512 * kGroup;

  static int64_t panel_units_a(int64_t k) { return panel_units<P, MR>(k); }
  static int64_t panel_units_b(int64_t k) { return panel_units<P, NR>(k); }
  static void pack_a(UnitA* panel, const Element* a, int64_t rs, int64_t ks, int64_t rows, int64_t k) {
    pack_panel<P, MR>(panel, a, rs, ks, rows, k);
  }
  static void pack_b(UnitB* panel, const Element* b, int64_t cs, int64_t ks, int64_t cols, int64_t k) {
    pack_panel<P, NR>(panel, b, cs, ks, cols, k);
  }
};

}  // namespace fastgemm::FASTGEMM_ISA
