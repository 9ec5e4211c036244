// The register-blocked micro-kernel, in GCC vector extensions.
//
// A C tile of ROWS x NV vectors stays in registers over all of k. Each step loads NV vectors of B and
// broadcasts ROWS values of A: ROWS * NV multiply-adds for ROWS + NV loads. So the multiply units are the
// limit, not the load units. With 32 registers the tile is 14 x 2 (28 accumulators), with 16 it is 6 x 2 (12
// accumulators).
#pragma once

#include <cstring>

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kRegisters = 32;
#else
inline constexpr int kRegisters = 16;
#endif

// How a unit of A and a vector of units of B are multiplied and added. Sums is the type of the accumulators
// of a vector: from() makes Sums from a vector, and total() makes a vector from Sums.
struct InOneVector {
  template <class V>
  using Sums = V;
  template <class V>
  static FASTGEMM_INLINE V from(V start) {
    return start;
  }
  template <class V>
  static FASTGEMM_INLINE V total(V sums) {
    return sums;
  }
};
struct MultiplyAdd : InOneVector {
  template <class V>
  static FASTGEMM_INLINE V apply(V acc, V a, V b) {
    return acc + a * b;
  }
};
struct PairMultiplyAdd : InOneVector {
  template <class V>
  static FASTGEMM_INLINE V apply(V acc, V a, V b) {
    return add_pair_products(acc, a, b);
  }
};

// int64 for processors that cannot multiply 64-bit lanes. With the 32-bit halves x = xl + 2^32 xh, modulo
// 2^64:
//
//   a b = al bl + 2^32 (al bh + ah bl)
//
// The products in brackets are needed modulo 2^32 only. So one multiplication of 32-bit lanes gives both:
// that by b with its halves exchanged. They are summed separately. A product takes 4 instructions and no
// shift, whereas acc + a * b compiles to 9 instructions.
struct HalvesMultiplyAdd {
  template <class V>
  struct Sums {
    V low;
    Vector<uint32_t> crossed;
  };
  template <class V>
  static FASTGEMM_INLINE Sums<V> from(V start) {
    return {start, Vector<uint32_t>{}};
  }
  template <class V>
  static FASTGEMM_INLINE Sums<V> apply(Sums<V> acc, V a, V b) {
    return {acc.low + low_product(a, b), acc.crossed + (Vector<uint32_t>)a * exchange_halves(b)};
  }
  template <class V>
  static FASTGEMM_INLINE V total(Sums<V> sums) {
    const V crossed = (V)sums.crossed;
    return sums.low + ((crossed + (crossed >> 32)) << 32);
  }
};

// The unit of A that begins `bytes` behind `a`. With `missing` bytes at its end, those before it are read in
// their place, which the row has, and shifted out.
template <class Unit>
FASTGEMM_INLINE Unit unit_at(const Unit* a, int64_t bytes, int missing) {
  Unit unit;
  std::memcpy(&unit, reinterpret_cast<const char*>(a) + bytes - missing, sizeof(Unit));
  if constexpr (std::is_integral_v<Unit>) unit >>= 8 * missing;  // others are never incomplete
  return unit;
}

template <class Traits, int ROWS, int NV, Reads reads>
__attribute__((noinline)) void register_tile(const MicroTile<Traits>& t) {
  using Acc = typename Traits::Acc;
  using Unit = typename Traits::UnitA;
  using V = Vector<Acc>;
  using U = Vector<Unit>;
  constexpr int N = kLanes<Acc>;
  static_assert(kLanes<Unit> == N);
  constexpr bool kInPlace = reads == Reads::in_place, kRowsOfA = reads == Reads::rows_of_a;
  const int64_t a_rs = kInPlace ? t.a_rs : 1, a_ks = kInPlace ? t.a_ks : kRowsOfA ? 1 : Traits::kMR;
  const int64_t b_ks = kInPlace ? t.b_ks : Traits::kNR;
  const Unit* a = t.a;
  const Unit* b = t.b;
  using Multiply = typename Traits::Multiply;
  typename Multiply::template Sums<V> acc[ROWS][NV];
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) acc[i][j] = Multiply::from(Traits::initial(t, j));
  }
  const auto unit_of_row = [&](int i, int missing) __attribute__((always_inline)) {
    if constexpr (kRowsOfA)
      return Traits::packed(broadcast<U>(unit_at(a, i * t.row_bytes, missing)));
    else
      return broadcast<U>(a[i * a_rs]);
  };
  const auto step = [&](int missing = 0) __attribute__((always_inline)) {
    U b_row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) b_row[j] = load<U>(b + j * N);
    if constexpr (reads == Reads::panels) Traits::prefetch_panel_a(a);
    Traits::prefetch_rows_of_b(b, b_ks);
    if constexpr (kInPlace) Traits::prefetch_next_columns(b + t.next_columns);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const U a_value = unit_of_row(i, missing);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = Multiply::apply(acc[i][j], a_value, b_row[j]);
    }
    a += a_ks;
    b += b_ks;
  };
  // If both operands are read in place, C is small or a buffer in L2, and is not prefetched.
  const int64_t steps = kRowsOfA ? t.k / Traits::kGroup : ceil_div(t.k, Traits::kGroup);
  const int64_t last = kInPlace ? 0 : min<int64_t>(steps, Traits::kLastSteps);
  for (int64_t g = steps - last; g > 0; --g) step();
  const Acc *row = t.c, *last_row = t.c + (ROWS - 1) * t.ldc;
  for (int64_t g = last; g > 0; --g) {
    Traits::prefetch_result(row);
    if (row != last_row) row += t.ldc;
    step();
  }
  if constexpr (kRowsOfA)
    if (const int rest = int(t.k % Traits::kGroup))
      step((Traits::kGroup - rest) * int(sizeof(Unit)) / Traits::kGroup);
  Acc* c = t.c;
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i, c += t.ldc) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      const V sum = Traits::scaled(t, Multiply::total(acc[i][j]), i, j * N);
      store(c + j * N, t.accumulate ? sum + load<V>(c + j * N) : sum);
    }
  }
}

template <class Traits, int NV, Reads reads, int... I>
FASTGEMM_INLINE void dispatch_rows(const MicroTile<Traits>& t, std::integer_sequence<int, I...>) {
  using Kernel = void (*)(const MicroTile<Traits>&);
  static constexpr Kernel kernels[] = {register_tile<Traits, I + 1, NV, reads>...};
  kernels[t.rows - 1](t);
}

// The Traits of a kernel that uses register_tile. Edges have smaller tiles, so that nothing is computed for
// rows that do not exist. Each of the last kLastSteps steps calls prefetch_result() of Derived for a row of
// C.
template <class Derived, class Packing, int MR, int NV, class MultiplyOp>
struct RegisterTraits : PanelTraits<Packing, MR, NV * kLanes<typename Packing::Unit>> {
  using Multiply = MultiplyOp;
  static constexpr bool kReadsInPlace = std::is_same_v<typename Packing::Element, typename Packing::Unit>;

  static constexpr bool kReadsRowsOfA = false;
  static int64_t unpacked_columns() { return 256; }
  static constexpr int kLastSteps = 0;
  template <class Unit>
  static FASTGEMM_INLINE void prefetch_panel_a(const Unit*) {}
  template <class Unit>
  static FASTGEMM_INLINE void prefetch_rows_of_b(const Unit*, int64_t) {}
  template <class Unit>
  static FASTGEMM_INLINE void prefetch_next_columns(const Unit*) {}
  template <class Acc>
  static FASTGEMM_INLINE void prefetch_result(const Acc*) {}
  // The initial value of the accumulators of column vector j.
  static FASTGEMM_INLINE auto initial(const MicroTile<Derived>&, int) {
    return Vector<Accumulator<typename Packing::Element>>{};
  }
  // What packing makes of units of A.
  template <class U>
  static FASTGEMM_INLINE U packed(U units) {
    return units;
  }
  // The sums of row i from column j on, times scales if there are any.
  template <class V>
  static FASTGEMM_INLINE V scaled(const MicroTile<Derived>&, V sums, int, int) {
    return sums;
  }
  template <Reads reads = Reads::panels>
  static void micro_kernel(const MicroTile<Derived>& t) {
    using Rows = std::make_integer_sequence<int, MR>;
    if constexpr (Derived::kReadsRowsOfA && reads == Reads::panels)
      if (t.row_bytes != 0) return micro_kernel<Reads::rows_of_a>(t);
    if (NV > 1 && t.cols <= kLanes<typename Packing::Unit>) {
      dispatch_rows<Derived, 1, reads>(t, Rows{});
    } else {
      dispatch_rows<Derived, NV, reads>(t, Rows{});
    }
  }
};

// Calls f.template operator()<Packing, MR, Multiply>() with the arguments for the element type. Integer tiles
// have fewer rows, because the product needs a register before it is added. int64 by halves has two sums per
// element.
template <class F>
inline void with_register_packing(DType type, F&& f) {
  with_element(type, [&]<class Element>() {
    constexpr bool integer = std::is_integral_v<Element>;
    constexpr bool halves = kMultipliesHalves && sizeof(Accumulator<Element>) == 8 && integer;
    constexpr int rows = halves ? 2 : kRegisters == 32 ? (integer ? 12 : 14) : 6;
    if constexpr (halves) {
      f.template operator()<Widened<Element>, rows, HalvesMultiplyAdd>();
    } else if constexpr (kIsNarrowInteger<Element>) {
      f.template operator()<Int16Pairs<Element>, rows, PairMultiplyAdd>();
    } else {
      f.template operator()<Widened<Element>, rows, MultiplyAdd>();
    }
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
