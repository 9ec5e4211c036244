// The register-blocked micro-kernel, in GCC vector extensions.
//
// A C tile of ROWS x NV vectors stays in registers over all of k. Each step loads NV vectors of B and
// broadcasts ROWS values of A: ROWS * NV multiply-adds for ROWS + NV loads, so that the multiply units,
// not the load units, set the pace. With 32 registers the tile is 14 x 2 (28 accumulators), with 16 it
// is 6 x 2 (12).
#pragma once

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kRegisters = 32;
#else
inline constexpr int kRegisters = 16;
#endif

// How one unit of A and a vector of units of B are multiplied and added. Sums is what a vector of sums is
// kept as; from() makes it of a vector, and total() a vector of it.
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

// int64 without an instruction that multiplies 64 bits: with halves x = xl + 2^32 xh, modulo 2^64,
//
//   a b = al bl + 2^32 (al bh + ah bl)
//
// The products in brackets count modulo 2^32, so that one multiplication of 32-bit lanes by b with its halves
// exchanged gives both, and they are summed by themselves. 4 instructions for each product and no shift,
// where acc + a * b becomes 9.
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

// Operands: packed panels, or kInPlace, where the strides of the tile apply.
template <class Traits, int ROWS, int NV, bool kInPlace>
__attribute__((noinline)) void register_tile(const MicroTile<Traits>& t) {
  using Acc = typename Traits::Acc;
  using Unit = typename Traits::UnitA;
  using V = Vector<Acc>;
  using U = Vector<Unit>;
  constexpr int N = kLanes<Acc>;
  static_assert(kLanes<Unit> == N);
  const int64_t a_rs = kInPlace ? t.a_rs : 1, a_ks = kInPlace ? t.a_ks : Traits::kMR;
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
  const auto step = [&]() __attribute__((always_inline)) {
    U b_row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) b_row[j] = load<U>(b + j * N);
    if constexpr (!kInPlace) Traits::prefetch_panels(a, b);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const U a_value = broadcast<U>(a[i * a_rs]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = Multiply::apply(acc[i][j], a_value, b_row[j]);
    }
    a += a_ks;
    b += b_ks;
  };
  // What is read in place is small, and in L1 before long.
  const int64_t steps = ceil_div(t.k, Traits::kGroup);
  const int64_t last = kInPlace ? 0 : min<int64_t>(steps, Traits::kLastSteps);
  for (int64_t g = steps - last; g > 0; --g) step();
  const Acc *row = t.c, *last_row = t.c + (ROWS - 1) * t.ldc;
  for (int64_t g = last; g > 0; --g) {
    Traits::prefetch_result(row);
    if (row != last_row) row += t.ldc;
    step();
  }
  Acc* c = t.c;
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i, c += t.ldc) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      const V sum = Multiply::total(acc[i][j]);
      store(c + j * N, t.accumulate ? sum + load<V>(c + j * N) : sum);
    }
  }
}

template <class Traits, int NV, bool kInPlace, int... I>
FASTGEMM_INLINE void dispatch_rows(const MicroTile<Traits>& t, std::integer_sequence<int, I...>) {
  using Kernel = void (*)(const MicroTile<Traits>&);
  static constexpr Kernel kernels[] = {register_tile<Traits, I + 1, NV, kInPlace>...};
  kernels[t.rows - 1](t);
}

// Traits of a kernel on register_tile. Edges get tiles of their own, so that nothing is computed for rows
// that do not exist. The last kLastSteps steps ask for a row of C each; what is asked for is Derived's to
// say.
template <class Derived, class Packing, int MR, int NV, class MultiplyOp>
struct RegisterTraits : PanelTraits<Packing, MR, NV * kLanes<typename Packing::Unit>> {
  using Multiply = MultiplyOp;
  static constexpr bool kReadsInPlace = std::is_same_v<typename Packing::Element, typename Packing::Unit>;

  static constexpr int kLastSteps = 0;
  template <class Unit>
  static FASTGEMM_INLINE void prefetch_panels(const Unit*, const Unit*) {}
  template <class Acc>
  static FASTGEMM_INLINE void prefetch_result(const Acc*) {}
  // What the accumulators of column vector j start from.
  static FASTGEMM_INLINE auto initial(const MicroTile<Derived>&, int) {
    return Vector<Accumulator<typename Packing::Element>>{};
  }
  template <bool kInPlace = false>
  static void micro_kernel(const MicroTile<Derived>& t) {
    using Rows = std::make_integer_sequence<int, MR>;
    if (NV > 1 && t.cols <= kLanes<typename Packing::Unit>) {
      dispatch_rows<Derived, 1, kInPlace>(t, Rows{});
    } else {
      dispatch_rows<Derived, NV, kInPlace>(t, Rows{});
    }
  }
};

// Calls f.template operator()<Packing, MR, Multiply>() with what suits the element type. Integer tiles are
// lower: the product needs a register before it is added. Where int64 is multiplied by halves it has two
// sums.
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
