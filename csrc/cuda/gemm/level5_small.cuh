// Small products of level 5, for both of its rows.
#pragma once

#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Computes any product in one launch, or two where k is long and C small; no operand is packed.
template <class T>
void gemm_small(const Gemm<T>&, int batch, Context&);

// Whether that is faster than large tiles over packed panels: up to about 768 x 768 x 768, and where C is so
// narrow that most of a large tile would lie outside. Extents that do not fit 32-bit tile coordinates count
// as small too.
template <class T>
bool is_small(const Gemm<T>& g, int batch) {
  constexpr int64_t kNarrow = 32, kMostExtent = int64_t{1} << 30;
  const double products = double(g.m) * double(g.n) * double(g.k) * batch;
  return products < 768.0 * 768 * 768 || std::min(g.m, g.n) <= kNarrow ||
         std::max({g.m, g.n, g.k}) > kMostExtent;
}

}  // namespace fastgemm::FASTGEMM_TARGET
