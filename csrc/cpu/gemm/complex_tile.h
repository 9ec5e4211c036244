// Products of complex numbers. Panels store real and imaginary parts separately. A register tile multiplies
// them by real multiply-adds, four for each complex one.
//
//   panel      for each k: the real parts of W rows (or columns), then their imaginary parts
//   C tile     ROWS x 1 vectors of real parts and as many of imaginary ones, interleaved by the store
//
// This computes the same sums as the real product of torch/complex.h, in the same order within a block of k.
// But B is written once instead of twice, and its vectors are loaded half as often.
#pragma once

#include "cpu/gemm/micro_kernel.h"

namespace fastgemm::FASTGEMM_ISA {

// pack_panel() of pack.h for complex numbers.
template <class T, int W>
void pack_complex_panel(T* dst, const Complex<T>* src, int64_t sw, int64_t sk, int64_t width, int64_t k) {
  using V = Vector<T>;
  using Lanes = std::make_integer_sequence<int, kLanes<T>>;
  constexpr int N = kLanes<T>, kVectors = static_cast<int>(ceil_div(W, N));
  // The parts are adjacent, like the elements of a real row of twice the length.
  if (sk == 1)
    return pack_panel<Widened<T>, W>(dst, reinterpret_cast<const T*>(src), 2 * sw, 1, width, 2 * k);
  const int count = static_cast<int>(min<int64_t>(W, width));
  for (int64_t kk = 0; kk < k; ++kk, dst += 2 * W, src += sk) {
    if (sw == 1 && width >= kVectors * N) {
      V re[kVectors], im[kVectors];
      for (int i = 0; i < kVectors; ++i) {
        const T* numbers = reinterpret_cast<const T*>(src + i * N);
        const V low = load<V>(numbers), high = load<V>(numbers + N);
        re[i] = unzip_even(low, high, Lanes{}), im[i] = unzip_odd(low, high, Lanes{});
      }
      // Stored in this order, because the last vector of each part may overwrite the start of the next part.
      for (int i = 0; i < kVectors; ++i) store(dst + i * N, re[i]);
      for (int i = 0; i < kVectors; ++i) store(dst + W + i * N, im[i]);
    } else {
      for (int w = 0; w < W; ++w) {
        const Complex<T> x = w < count ? src[w * sw] : Complex<T>{};
        dst[w] = x.re, dst[W + w] = x.im;
      }
    }
  }
}

template <class Traits, int ROWS>
__attribute__((noinline)) void complex_tile(const MicroTile<Traits>& t) {
  using T = typename Traits::UnitA;
  using V = Vector<T>;
  using Lanes = std::make_integer_sequence<int, kLanes<T>>;
  constexpr int N = kLanes<T>, MR = Traits::kMR, kAhead = 8;
  V re[ROWS] = {}, im[ROWS] = {};
  for (int i = 0; i < ROWS; ++i)  // prefetches C before the loop
    for (int j = 0; j < 2 * N; j += 64 / static_cast<int>(sizeof(T)))
      __builtin_prefetch(reinterpret_cast<T*>(t.c + i * t.ldc) + j, 1, 3);
  const T *a = t.a, *b = t.b;
  for (int64_t kk = t.k; kk > 0; --kk, a += 2 * MR, b += 2 * N) {
    const V b_re = load<V>(b), b_im = load<V>(b + N);
    // Neither panel fits in the L1 cache.
    __builtin_prefetch(b + kAhead * 2 * N, 0, 3), __builtin_prefetch(b + kAhead * 2 * N + N, 0, 3);
    __builtin_prefetch(a + kAhead * 2 * MR, 0, 3), __builtin_prefetch(a + kAhead * 2 * MR + MR, 0, 3);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const V a_re = broadcast<V>(a[i]);
      re[i] = re[i] + a_re * b_re;
      im[i] = im[i] + a_re * b_im;
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const V a_im = broadcast<V>(a[MR + i]);
      re[i] = re[i] - a_im * b_im;
      im[i] = im[i] + a_im * b_re;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i) {
    T* c = reinterpret_cast<T*>(t.c + i * t.ldc);
    const V low = zip_low(re[i], im[i], Lanes{}), high = zip_high(re[i], im[i], Lanes{});
    store(c, t.accumulate ? low + load<V>(c) : low);
    store(c + N, t.accumulate ? high + load<V>(c + N) : high);
  }
}

// The Traits (engine.h) of complex products. With 32 registers, 14 rows need 28 of them for sums; with 16
// registers, 6 rows need 12.
template <class T>
struct ComplexTraits {
  using Element = Complex<T>;
  using Acc = Complex<T>;
  using UnitA = T;
  using UnitB = T;
  static constexpr int kMR = kRegisters == 32 ? 14 : 6, kNR = kLanes<T>, kGroup = 1;
  static constexpr int kKC = 512;

  static int64_t panel_units_a(int64_t k) { return panel_units<Widened<T>, kMR>(2 * k); }
  static int64_t panel_units_b(int64_t k) { return panel_units<Widened<T>, kNR>(2 * k); }
  static void pack_a(T* panel, const Element* a, int64_t rs, int64_t ks, int64_t rows, int64_t k) {
    pack_complex_panel<T, kMR>(panel, a, rs, ks, rows, k);
  }
  static void pack_b(T* panel, const Element* b, int64_t cs, int64_t ks, int64_t cols, int64_t k) {
    pack_complex_panel<T, kNR>(panel, b, cs, ks, cols, k);
  }
  // Conjugates the numbers of a packed panel.
  template <int W>
  static void conjugate(T* panel, int64_t k) {
    for (int64_t kk = 0; kk < k; ++kk)
      for (int w = 0; w < W; ++w) panel[(2 * kk + 1) * W + w] = -panel[(2 * kk + 1) * W + w];
  }
  static void micro_kernel(const MicroTile<ComplexTraits>& t) {
    dispatch(t, std::make_integer_sequence<int, kMR>{});
  }

 private:
  template <int... I>
  static FASTGEMM_INLINE void dispatch(const MicroTile<ComplexTraits>& t, std::integer_sequence<int, I...>) {
    using Kernel = void (*)(const MicroTile<ComplexTraits>&);
    static constexpr Kernel kernels[] = {complex_tile<ComplexTraits, I + 1>...};
    kernels[t.rows - 1](t);
  }
};

}  // namespace fastgemm::FASTGEMM_ISA
