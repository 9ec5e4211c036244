// Packing: copies a block of an operand into micro-panels, the order in which the micro-kernel reads it.
//
// A micro-panel has W rows of A (or W columns of B) and depth k. Unit [g * W + w] holds k-group g of row w.
// The panel is read as one sequential stream, without TLB misses and without conflicts in a cache set.
// Strides, transposition and type conversion cost time once, here, instead of at each use.
//
// A k-group is the elements of one row that one multiply instruction takes: one for an fma, two int16 for
// pmaddwd. A Packing says how elements become units:
//   Element, Unit, kGroup
//   Vector<Unit> along_k(const Element* p)              lanes: successive k-groups, p contiguous in k
//   Vector<Unit> along_w(const Element* p, int64_t sk)  lanes: successive rows, p contiguous in w
//   Unit one(const Element* p, int64_t sk, int valid)   one k-group, elements from `valid` on are zero
#pragma once

#include "core/cpu_features.h"
#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {

// Intel's server cores have a large L2 since Ice Lake.
inline bool has_large_l2() { return cpu_caches().l2 >= size_t{5} << 18; }
// Whether the routes that save packing were measured to be faster: on an Emerald Rapids with two threads.
#if defined(__AVX512F__)
inline bool saves_packing() { return has_large_l2(); }
#else
inline bool saves_packing() { return false; }
#endif

// A unit is one element in the accumulator's type.
template <class T>
struct Widened {
  using Element = T;
  using Unit = Accumulator<T>;
  static constexpr int kGroup = 1;

  static FASTGEMM_INLINE Vector<Unit> along_k(const T* p) { return load_widened(p); }
  static FASTGEMM_INLINE Vector<Unit> along_w(const T* p, int64_t) { return load_widened(p); }
  static FASTGEMM_INLINE Unit one(const T* p, int64_t, int64_t) { return widen(*p); }
};

// A unit is two int16, or two int8 or uint8 that are widened to int16.
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

// The number of units of a panel of depth k. If the width of a panel is not a multiple of the vector, it is
// still written with whole vectors. Each of them overlaps the next row, and the last one needs extra memory.
template <class Packing, int W>
constexpr int64_t panel_units(int64_t k) {
  return ceil_div(k, Packing::kGroup) * W +
         (W % kLanes<typename Packing::Unit> ? kLanes<typename Packing::Unit> : 0);
}

// Element (w, kk) of the source lies at src[w * sw + kk * sk]. The source has `width` rows. If that is less
// than W, the panel is filled up with zeros.
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
      // From the last vector to the first: where a vector reaches into the next row, that row's own vector
      // overwrites it.
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

// The Traits (engine.h) of a micro-kernel that reads panels of this Packing; only micro_kernel is missing. A
// k-block is so deep that the time to read and write C is negligible, while its B micro-panel of 32 columns
// (64 KiB) still fits in L2 beside the A block.
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
