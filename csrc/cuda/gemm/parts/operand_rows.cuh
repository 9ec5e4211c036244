// Operands of the tensor-core kernels that copy by cp.async: matrices whose rows begin at multiples of 16
// bytes, read where they are or copied by rows_operands(). If rows begin at other addresses, they are copied
// in the same layout, both operands in one launch (parts/sources/row_copies.cuh). An operand whose direction
// the kernel does not take is transposed.
#pragma once

#include <span>

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

// Which operands a kernel multiplies in place. A kernel that runs only by name takes `a_along_k`, which is
// enough to show what it changes.
enum class OperandLayout { along_k, a_along_k, any };

// Both operands of a product.
template <class T>
struct RowsOperands {
  RowsOperand<T> a, b;

  // Calls body.operator()<a_along_k, b_along_k>().
  template <OperandLayout layout, class Body>
  void with_directions(Body&& body) const {
    if constexpr (layout == OperandLayout::along_k) {
      body.template operator()<true, true>();
    } else {
      if constexpr (layout == OperandLayout::any) {
        if (!a.along_k && b.along_k) return body.template operator()<false, true>();
        if (!a.along_k) return body.template operator()<false, false>();
      }
      b.along_k ? body.template operator()<true, true>() : body.template operator()<true, false>();
    }
  }
};

// Takes each operand in place, or copies it. The launch that copies rows also sets `flags` to zero. It runs
// even if there is nothing to copy.
template <OperandLayout layout, class T>
RowsOperands<T> rows_operands(const Gemm<T>&, int batch, Context&, std::span<uint32_t> flags = {});

}  // namespace fastgemm::FASTGEMM_TARGET
