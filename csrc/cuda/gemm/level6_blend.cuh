// C that no box can be stored to, because its rows do not begin at multiples of 16 bytes, or c that cannot be
// read on the way. The product goes to the workspace, and a second launch makes C of it: at 4096 in bf16 that
// takes a third of the product's time.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Whether the tensor memory accelerator can store the result as it is, and read what is added to it.
template <class T>
bool takes_boxes(const Gemm<T>& g, int batch) {
  const Result<T>& r = g.result;
  const auto takes = [&](const void* data, int64_t row_stride, int64_t batch_stride) {
    const int64_t unit = 16 / r.out_bytes();
    return is_aligned(static_cast<const char*>(data), 16) && row_stride % unit == 0 && row_stride >= g.n &&
           (batch == 1 || (batch_stride % unit == 0 && batch_stride > 0));
  };
  return takes(r.out, r.row_stride, r.batch_stride) &&
         (r.beta == Accumulator<T>(0) ||
          (r.c_col_stride == 1 && takes(r.c, r.c_row_stride, r.c_batch_stride)));
}

// A result of plain sums in the workspace, rows of whole 16 bytes.
template <class T>
Result<T> sums_in_workspace(const Gemm<T>& g, int batch, Context& context) {
  Result<T> r{};
  r.row_stride = ceil_div(g.n, 4) * 4;
  r.batch_stride = g.m * r.row_stride;
  r.out = context.allocate(size_t(batch * r.batch_stride) * sizeof(Accumulator<T>));
  r.alpha = 1;
  r.wide = Result<T>::kMayBeWide;
  return r;
}

// g.result = alpha * sums + beta * c.
template <class T>
void blend(const Gemm<T>& g, const Result<T>& sums, int batch, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
