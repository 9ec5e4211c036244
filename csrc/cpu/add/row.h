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

// An operand with stride 0 has one element for the whole row.
template <class T, bool Broadcast>
struct RowOperand {
  const T* data;
  Vector<Lane<T>> value;
  FASTGEMM_INLINE explicit RowOperand(const T* p) : data(p) {
    if constexpr (Broadcast) value = broadcast<Vector<Lane<T>>>(static_cast<Lane<T>>(widen(*p)));
  }
  FASTGEMM_INLINE Vector<Lane<T>> at(int64_t j) const {
    if constexpr (Broadcast) return value;
    return load_lanes(data + j);
  }
};

template <class T>
FASTGEMM_INLINE void add_strided(const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out,
                                 int64_t out_stride, int64_t n, Accumulator<T> alpha) {
  for (int64_t j = 0; j < n; ++j)
    out[j * out_stride] = round_to<T>(widen(a[j * a_stride]) + alpha * widen(b[j * b_stride]));
}

template <class T, bool BroadcastA, bool BroadcastB>
FASTGEMM_INLINE void add_vectors(const T* a, const T* b, T* out, int64_t n, Accumulator<T> alpha) {
  constexpr int64_t kStep = kLanes<Lane<T>>;
  const RowOperand<T, BroadcastA> x(a);
  const RowOperand<T, BroadcastB> y(b);
  const auto scale = broadcast<Vector<Lane<T>>>(static_cast<Lane<T>>(alpha));
  int64_t j = 0;
  if (alpha == Accumulator<T>(1)) {
    for (; j + kStep <= n; j += kStep) store_lanes(out + j, x.at(j) + y.at(j));
  } else {
    for (; j + kStep <= n; j += kStep) store_lanes(out + j, x.at(j) + scale * y.at(j));
  }
  add_strided(a + (BroadcastA ? 0 : j), BroadcastA ? 0 : 1, b + (BroadcastB ? 0 : j), BroadcastB ? 0 : 1,
              out + j, 1, n - j, alpha);
}

template <class T>
FASTGEMM_INLINE void add_row(const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out, int64_t n,
                             Accumulator<T> alpha) {
  if (n == 0) return;  // even a broadcast operand may have no element then
  if (a_stride == 1 && b_stride == 1) return add_vectors<T, false, false>(a, b, out, n, alpha);
  if (a_stride == 1 && b_stride == 0) return add_vectors<T, false, true>(a, b, out, n, alpha);
  if (a_stride == 0 && b_stride == 1) return add_vectors<T, true, false>(a, b, out, n, alpha);
  add_strided(a, a_stride, b, b_stride, out, 1, n, alpha);
}

// Complex numbers, whose parts are added as numbers. Strides count complex numbers.
template <class T>
FASTGEMM_INLINE void add_strided(const Complex<T>* a, int64_t a_stride, const Complex<T>* b, int64_t b_stride,
                                 Complex<T>* out, int64_t out_stride, int64_t n, Accumulator<T> alpha) {
  for (int64_t j = 0; j < n; ++j)
    add_strided(&a[j * a_stride].re, 1, &b[j * b_stride].re, 1, &out[j * out_stride].re, 1, 2, alpha);
}
template <class T>
FASTGEMM_INLINE void add_row(const Complex<T>* a, int64_t a_stride, const Complex<T>* b, int64_t b_stride,
                             Complex<T>* out, int64_t n, Accumulator<T> alpha) {
  if (a_stride != 1 || b_stride != 1) return add_strided(a, a_stride, b, b_stride, out, 1, n, alpha);
  add_row(&a->re, 1, &b->re, 1, &out->re, 2 * n, alpha);
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
