// The second launch of a float32 product whose k was split over blocks.
#pragma once

#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// g.result = alpha * (the sum of `splits` x batch matrices of m x n, in order) + beta * c; sums that are not
// finite are computed again from the operands.
void add_splits(const float* partials, const Gemm<float>& g, int batch, int splits, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
