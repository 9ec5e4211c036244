// Operands of the portable tensor-core rungs: matrices whose rows begin at multiples of 16 bytes, so that
// cp.async moves whole units, read where they are or copied.
#pragma once

#include "cuda/gemm/parts/copied_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

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
  PackedRows<T> rows{data, 0, batch > 1 ? batch_stride : 0};
  const bool along_k = k == 1 || k_stride == 1;
  if ((along_k ? side : k) > 1) rows.row_stride = along_k ? side_stride : k_stride;
  if (rows_aligned(rows) && (along_k || takes == Takes::any))
    return {rows.data, rows.row_stride, rows.batch_stride, int(side), int(k), along_k};
  rows = pack_rows(data, side, k, side_stride, k_stride, rows.batch_stride, batch, context);
  return {rows.data, rows.row_stride, rows.batch_stride, int(side), int(k), true};
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
