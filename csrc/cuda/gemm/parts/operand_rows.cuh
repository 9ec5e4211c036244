// Operands of the tensor-core kernels that copy by cp.async: matrices whose rows begin at multiples of 16
// bytes, read where they are or copied by rows_operands().
#pragma once

#include "cuda/gemm/parts/problem.cuh"

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
RowsOperand<T> rows_operand(const T*, int64_t side, int64_t k, int64_t side_stride, int64_t k_stride,
                            int64_t batch_stride, int batch, Context&);

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
  const Operand<T>&a = g.a, &b = g.b;
  return {rows_operand<takes>(a.data, g.m, g.k, a.row_stride, a.col_stride, a.batch_stride, batch, context),
          rows_operand<takes>(b.data, g.n, g.k, b.col_stride, b.row_stride, b.batch_stride, batch, context)};
}

}  // namespace fastgemm::FASTGEMM_TARGET
