// The micro-kernel for aarch64's matrix instructions bfmmla and smmla, and the packing of its operands.
//
// One instruction multiplies 2 rows of A by 2 columns of B, 8 bytes of k deep (4 bfloat16 or 8 int8), and
// adds the four sums to a vector of four:
//
//   (a0 | a1), (b0 | b1)  ->  (a0.b0, a0.b1, a1.b0, a1.b1)
//
// A dot-product instruction (bfdot, sdot) does half as much with the same two vectors: one row times four
// columns, 4 bytes of k deep. The unit of a packed panel is 8 bytes, so two adjacent rows are one vector. The
// panels of pack.h therefore fit, and nothing is broadcast.
//
// The tile of C is 8 x 12, that is 4 x 6 vectors of 2 x 2 sums. It needs 10 loads for 24 products per
// k-group, and 24 of 32 registers. The sums become rows after the loop: the lower halves of two adjacent
// vectors are four columns of the upper row, their upper halves four columns of the lower row.
//
// Its speed was not measured; it ran only under emulation.
#pragma once

#include "cpu/gemm/micro_kernel.h"

namespace fastgemm::FASTGEMM_ISA {

// 8 bytes of one row: 4 bfloat16 or 8 int8, consecutive in k.
template <class T>
struct EightBytes {
  using Element = T;
  using Unit = uint64_t;
  static constexpr int kGroup = 8 / sizeof(T);
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>;
  using TwoBits = std::conditional_t<sizeof(T) == 2, uint32_t, uint16_t>;

  static FASTGEMM_INLINE Vector<Unit> along_k(const T* p) { return load<Vector<Unit>>(p); }
  // Loads two adjacent rows for each k, then moves all elements of the first row before all of the second.
  static FASTGEMM_INLINE Vector<Unit> along_w(const T* p, int64_t sk) {
    Vector<TwoBits> neighbours;
#pragma GCC unroll 8
    for (int i = 0; i < kGroup; ++i) {
      TwoBits both;
      __builtin_memcpy(&both, p + i * sk, sizeof both);
      neighbours[i] = both;
    }
    return (Vector<Unit>)apart((Vector<Bits>)neighbours, std::make_integer_sequence<int, 2 * kGroup>{});
  }
  static FASTGEMM_INLINE Unit one(const T* p, int64_t sk, int64_t valid) {
    Bits row[kGroup] = {};
    for (int i = 0; i < min<int64_t>(kGroup, valid); ++i) __builtin_memcpy(row + i, p + i * sk, sizeof(T));
    return bit_cast<Unit>(row);
  }

 private:
  template <class V, int... I>
  static FASTGEMM_INLINE V apart(V x, std::integer_sequence<int, I...>) {
    constexpr int n = sizeof...(I);
    return __builtin_shufflevector(x, x, (2 * I % n + 2 * I / n)...);
  }
};

// Matrix::apply(sums, a, b) is the instruction.
template <class T, class Matrix>
struct MmlaTraits : PanelTraits<EightBytes<T>, 8, 12> {
  using Base = PanelTraits<EightBytes<T>, 8, 12>;
  using Acc = typename Base::Acc;
  using V = Vector<Acc>;
  using U = Vector<uint64_t>;
  static constexpr int N = kLanes<Acc>;  // columns of C in one vector

  // Picks a smaller tile at the edges, so that few sums outside of C are computed.
  static void micro_kernel(const MicroTile<MmlaTraits>& t) {
    using Pairs = std::make_integer_sequence<int, Base::kMR / 2>;
    if (t.cols <= N) return by_rows<1>(t, Pairs{});
    if (t.cols <= 2 * N) return by_rows<2>(t, Pairs{});
    by_rows<3>(t, Pairs{});
  }

 private:
  template <int NV, int... I>
  static FASTGEMM_INLINE void by_rows(const MicroTile<MmlaTraits>& t, std::integer_sequence<int, I...>) {
    using Kernel = void (*)(const MicroTile<MmlaTraits>&);
    static constexpr Kernel kernels[] = {tile<I + 1, NV>...};
    kernels[(t.rows - 1) / 2](t);
  }

  // A tile of 2 * PAIRS rows by NV vectors of columns. The last row may be outside of C.
  template <int PAIRS, int NV>
  __attribute__((noinline)) static void tile(const MicroTile<MmlaTraits>& t) {
    V sums[PAIRS][2 * NV] = {};
    const uint64_t *a = t.a, *b = t.b;
    for (int64_t g = ceil_div(t.k, Base::kGroup); g > 0; --g, a += Base::kMR, b += Base::kNR) {
      U rows[PAIRS];
#pragma GCC unroll 4
      for (int i = 0; i < PAIRS; ++i) rows[i] = load<U>(a + 2 * i);
#pragma GCC unroll 3
      for (int j = 0; j < 2 * NV; j += 2) {
        // Keeps the compiler from moving loads up. gcc 12 would load all columns at once; registers were then
        // too few, and two sums were spilled in every step.
        asm volatile("" ::: "memory");
        const U left = load<U>(b + 2 * j), right = load<U>(b + 2 * j + 2);
#pragma GCC unroll 4
        for (int i = 0; i < PAIRS; ++i) {
          sums[i][j] = Matrix::apply(sums[i][j], rows[i], left);
          sums[i][j + 1] = Matrix::apply(sums[i][j + 1], rows[i], right);
        }
      }
    }
    Acc* c = t.c;
#pragma GCC unroll 4
    for (int i = 0; i < PAIRS; ++i, c += 2 * t.ldc) {
#pragma GCC unroll 3
      for (int j = 0; j < NV; ++j) {
        const U left = (U)sums[i][2 * j], right = (U)sums[i][2 * j + 1];
        write(t, c + j * N, (V)zip_low(left, right, Halves{}));
        if (2 * i + 1 < t.rows) write(t, c + t.ldc + j * N, (V)zip_high(left, right, Halves{}));
      }
    }
  }
  using Halves = std::make_integer_sequence<int, 2>;

  static FASTGEMM_INLINE void write(const MicroTile<MmlaTraits>& t, Acc* c, V row) {
    store(c, t.accumulate ? row + load<V>(c) : row);
  }
};

}  // namespace fastgemm::FASTGEMM_ISA
