// Operands of the portable tensor-core rungs: matrices whose rows begin at multiples of 16 bytes, so that
// cp.async moves whole units, read where they are or copied.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/problem.cuh"
#include "cuda/transpose/levels.h"

namespace fastgemm::FASTGEMM_TARGET {

// What tensor cores multiply: elements of T, float32 as tf32.
template <class T>
using MmaElement = std::conditional_t<std::is_same_v<T, float>, Tf32, T>;

// An operand (side, k), side being m of A and n of B. Its rows in memory run along k or along the side.
template <class T>
struct RowsOperand {
  const T* data;
  int64_t row_stride, batch_stride;  // in elements, multiples of 16 bytes where they count
  int side, k;
  bool along_k;
};

// Which operands a kernel multiplies in place.
enum class Takes { along_k, any };

// The operand whose element (s, k) lies at data + s * side_stride + k * k_stride. Where the kernel cannot
// read it, fastgemm's transpose writes it into the workspace, along k.
template <Takes takes, class T>
RowsOperand<T> rows_operand(const T* data, int64_t side, int64_t k, int64_t side_stride, int64_t k_stride,
                            int64_t batch_stride, int batch, Context& context) {
  constexpr int64_t kUnit = kPer16Bytes<T>;
  if (k == 0) return {nullptr, 0, 0, int(side), 0, true};
  RowsOperand<T> o{data, 0, batch > 1 ? batch_stride : 0, int(side), int(k), k == 1 || k_stride == 1};
  if (side == 1 && k > 1 && k_stride != 1) o.along_k = false;
  const int64_t rows = o.along_k ? side : k;
  if (rows > 1) o.row_stride = o.along_k ? side_stride : k_stride;
  const bool aligned = is_aligned(data, 16) && o.row_stride % kUnit == 0 && o.batch_stride % kUnit == 0;
  if (aligned && (o.along_k || takes == Takes::any)) return o;

  const bool shared = o.batch_stride == 0;
  TransposeProblem copy;  // src (k, side) to dst (side, k)
  copy.type = sizeof(T) == 1   ? DType::bits8
              : sizeof(T) == 2 ? DType::bits16
              : sizeof(T) == 4 ? DType::bits32
                               : DType::bits64;
  copy.batch = shared ? 1 : batch, copy.rows = k, copy.cols = side;
  copy.src = {data, k == 1 ? 1 : k_stride, side == 1 ? 1 : side_stride, o.batch_stride};
  o.row_stride = ceil_div(k, kUnit) * kUnit;
  const int64_t plane = side * o.row_stride;
  copy.dst = {context.allocate(size_t(copy.batch * plane) * sizeof(T)), o.row_stride, 1, plane};
  transpose_pipelined(copy, context);
  o.data = static_cast<const T*>(copy.dst.data);
  o.batch_stride = shared ? 0 : plane;
  o.along_k = true;
  return o;
}

// Both operands of a product.
template <class T>
struct RowsOperands {
  RowsOperand<T> a, b;

  // Calls body.operator()<a_along_k, b_along_k>().
  template <Takes takes, class Body>
  void with_directions(Body&& body) const {
    if constexpr (takes == Takes::along_k) {
      body.template operator()<true, true>();
    } else {
      if (a.along_k && b.along_k) return body.template operator()<true, true>();
      if (a.along_k) return body.template operator()<true, false>();
      if (b.along_k) return body.template operator()<false, true>();
      body.template operator()<false, false>();
    }
  }
};

template <Takes takes, class T>
RowsOperands<T> rows_operands(const Gemm<T>& g, int batch, Context& context) {
  return {rows_operand<takes>(g.a.data, g.m, g.k, g.a.row_stride, g.a.col_stride, g.a.batch_stride, batch,
                              context),
          rows_operand<takes>(g.b.data, g.n, g.k, g.b.col_stride, g.b.row_stride, g.b.batch_stride, batch,
                              context)};
}

}  // namespace fastgemm::FASTGEMM_TARGET
