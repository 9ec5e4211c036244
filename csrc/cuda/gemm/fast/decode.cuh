// The common code of two kernels for few rows, invariant.cu and decode_planes.cu. In both, the bits of a row
// do not depend on the other rows.
#pragma once

#include "cuda/gemm/parts/schedules/decode_tiles.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Returns the activations as box_operand() does. They are small, so they are copied where m runs along rows.
template <class T>
BoxOperand<T> activations(const Side<T>& s, int batch, RowCopies& copies, Context& context) {
  const BoxOperand<T> o = operand_in_place(s, batch);
  return o.major == Major::mn ? copied_along(Major::k, s, batch, context)
                              : box_operand(s, batch, 1, false, copies, context);
}

// Whether two neighbours of a row of C can be stored together.
template <class T>
bool stores_pairs(const Result<T>& r, int batch) {
  return is_aligned(static_cast<const char*>(r.out), size_t(2 * r.out_bytes())) && r.row_stride % 2 == 0 &&
         (batch == 1 || r.batch_stride % 2 == 0);
}

// Computes a product of few rows with the bits of wgmma_specialized (invariant.cu): 16-bit types, and tf32
// without scales whose weights lie along k. Returns false, and launches nothing, for any other product.
bool multiply_few_rows(const GemmProblem&, Context&);

// Computes float32 products of few rows with the bits of bf16x6 (decode_planes.cu). Only for a k that bf16x6
// sums in one launch.
void decode_by_planes(const Gemm<float>&, int batch, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
