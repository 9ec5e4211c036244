// Products whose sums go to the workspace first. Contract: a kernel stores plain sums to the result that
// sums_in_workspace() returns; then blend() computes C from them in a second launch.
//
//   kernel -> sums (m, n) in the workspace -> blend -> C = alpha * sums + beta * c
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Allocates a result for plain sums in the workspace. Its rows are multiples of 16 bytes.
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
