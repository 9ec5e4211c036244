// Adds one row in SIMD registers; the result is contiguous. Levels 4 and 5 share it. Compiled once per
// instruction set.
#pragma once

#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {

// The type of a vector's lanes. Narrow integers wrap modulo 2^8 or 2^16; half types are added in fp32.
template <class T>
using Lane = std::conditional_t<kIsNarrowInteger<T>, std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>,
                                Accumulator<T>>;

template <class T>
FASTGEMM_INLINE Vector<Lane<T>> load_lanes(const T* p) {
  if constexpr (kIsNarrowInteger<T>) {
    return load<Vector<Lane<T>>>(p);
  } else {
    return load_widened(p);
  }
}

template <class T>
FASTGEMM_INLINE void store_lanes(T* p, Vector<Lane<T>> v) {
  if constexpr (kIsNarrowInteger<T>) {
    store(p, v);
  } else {
    store_narrowed<T, Lane<T>>(p, v);
  }
}

// The type of a number's parts, real and imaginary, which are added as numbers. Strides count numbers.
template <class T>
struct PartsOf {
  using Type = T;
  static constexpr int64_t kCount = 1;
};
template <class T>
struct PartsOf<Complex<T>> {
  using Type = T;
  static constexpr int64_t kCount = 2;
};
template <class T>
using PartOf = typename PartsOf<T>::Type;

// A vector that repeats a pair of numbers.
template <class T, int... I>
FASTGEMM_INLINE Vector<T> broadcast_pair(T x, T y, std::integer_sequence<int, I...>) {
  return Vector<T>{(I % 2 ? y : x)...};
}

// In a loop, keeps the compiler from computing a product with v before the loop. There it would be rounded,
// and not be part of a fused multiply-add, as it is for operands with other strides.
template <class V>
FASTGEMM_INLINE V not_hoisted(V v) {
#if defined(__SSE2__)
  asm volatile("" : "+v"(v));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(v));
#endif
  return v;
}

// An operand with stride 0 has one number for the whole row.
template <class T, bool Broadcast>
struct RowOperand {
  using L = Lane<PartOf<T>>;
  const T* data;
  Vector<L> value;
  FASTGEMM_INLINE explicit RowOperand(const T* p) : data(p) {
    if constexpr (Broadcast && PartsOf<T>::kCount == 2)
      value = broadcast_pair<L>(widen(p->re), widen(p->im), std::make_integer_sequence<int, kLanes<L>>{});
    else if constexpr (Broadcast)
      value = broadcast<Vector<L>>(static_cast<L>(widen(*p)));
  }
  FASTGEMM_INLINE Vector<L> at(int64_t j) const {
    if constexpr (Broadcast) return value;
    return load_lanes(reinterpret_cast<const PartOf<T>*>(data + j));
  }
};

template <class T>
FASTGEMM_INLINE T sum_of(T a, T b, Accumulator<T> alpha) {
  return round_to<T>(widen(a) + alpha * widen(b));
}
template <class T>
FASTGEMM_INLINE Complex<T> sum_of(Complex<T> a, Complex<T> b, Accumulator<T> alpha) {
  return {sum_of(a.re, b.re, alpha), sum_of(a.im, b.im, alpha)};
}

template <class T>
FASTGEMM_INLINE void add_strided(const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out,
                                 int64_t out_stride, int64_t n, Accumulator<PartOf<T>> alpha) {
  for (int64_t j = 0; j < n; ++j) out[j * out_stride] = sum_of(a[j * a_stride], b[j * b_stride], alpha);
}

template <class T, bool BroadcastA, bool BroadcastB>
FASTGEMM_INLINE void add_vectors(const T* a, const T* b, T* out, int64_t n, Accumulator<PartOf<T>> alpha) {
  using Part = PartOf<T>;
  using L = Lane<Part>;
  constexpr int64_t kStep = kLanes<L> / PartsOf<T>::kCount;
  const RowOperand<T, BroadcastA> x(a);
  const RowOperand<T, BroadcastB> y(b);
  const auto scale = broadcast<Vector<L>>(static_cast<L>(alpha));
  const auto put = [out](int64_t j, Vector<L> sum) { store_lanes(reinterpret_cast<Part*>(out + j), sum); };
  int64_t j = 0;
  if (alpha == Accumulator<Part>(1)) {
    for (; j + kStep <= n; j += kStep) put(j, x.at(j) + y.at(j));
  } else {
    for (; j + kStep <= n; j += kStep) {
      if constexpr (BroadcastB && PartsOf<T>::kCount == 2)
        put(j, x.at(j) + scale * not_hoisted(y.at(j)));
      else
        put(j, x.at(j) + scale * y.at(j));
    }
  }
  add_strided(a + (BroadcastA ? 0 : j), BroadcastA ? 0 : 1, b + (BroadcastB ? 0 : j), BroadcastB ? 0 : 1,
              out + j, 1, n - j, alpha);
}

// Copies elements one by one.
template <class T>
FASTGEMM_INLINE void copy_elements(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n) {
  for (int64_t j = 0; j < n; ++j) keep_scalar(), to[j * to_stride] = from[j * from_stride];
}

// Sums that are rounded cost more instructions than a copy, and vectors share them. Other sums of strided
// operands are as fast without vectors.
template <class T>
inline constexpr bool kCopiesStrided =
    !std::is_same_v<Accumulator<PartOf<T>>, PartOf<T>> && !std::is_integral_v<T>;

template <class T>
FASTGEMM_INLINE bool add_unit_strides(const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out,
                                      int64_t n, Accumulator<PartOf<T>> alpha) {
  if (a_stride == 1 && b_stride == 1) return add_vectors<T, false, false>(a, b, out, n, alpha), true;
  if (a_stride == 1 && b_stride == 0) return add_vectors<T, false, true>(a, b, out, n, alpha), true;
  if (a_stride == 0 && b_stride == 1) return add_vectors<T, true, false>(a, b, out, n, alpha), true;
  return false;
}

template <class T>
FASTGEMM_INLINE void add_row(const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out, int64_t n,
                             Accumulator<PartOf<T>> alpha) {
  if (n == 0) return;  // even a broadcast operand may have no element then
  if (add_unit_strides(a, a_stride, b, b_stride, out, n, alpha)) return;
  if constexpr (kCopiesStrided<T>) {
    constexpr int64_t kPiece = 256;
    T a_piece[kPiece], b_piece[kPiece];
    for (int64_t j = 0; j < n; j += kPiece) {
      const int64_t count = min(kPiece, n - j);
      const auto contiguous = [&](const T* p, int64_t stride, T* piece) {
        if (stride != 1) copy_elements(p + j * stride, stride, piece, 1, count);
        return stride != 1 ? piece : p + j;
      };
      add_vectors<T, false, false>(contiguous(a, a_stride, a_piece), contiguous(b, b_stride, b_piece),
                                   out + j, count, alpha);
    }
  } else {
    add_strided(a, a_stride, b, b_stride, out, 1, n, alpha);
  }
}

// Calls f.template operator()<Number, Part>(); they differ for complex numbers, whose types are bits32,
// bits64 and bits128.
template <class F>
FASTGEMM_INLINE void with_number(DType type, F&& f) {
  switch (type) {
    case DType::bits32:
      return f.template operator()<Complex<Half>, Half>();
    case DType::bits64:
      return f.template operator()<Complex<float>, float>();
    case DType::bits128:
      return f.template operator()<Complex<double>, double>();
    default:
      with_element(type, [&]<class T>() { f.template operator()<T, T>(); });
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
