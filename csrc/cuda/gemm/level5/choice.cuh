// Which kernel of level 5 suits a problem. Both rows take every problem, and hand those that they are not
// made for to one of these.
#pragma once

#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// One launch (two where k is split), operands read where they lie: small products.
template <class T>
void gemm_small(const Gemm<T>&, int batch, Context&);

// 128 x 128 tiles over packed panels, k split where tiles are few: what else the portable row runs.
template <class T>
void gemm_panels(const Gemm<T>&, int batch, Context&);

// Up to about 600 x 600 x 600 on 132 multiprocessors, and where most of a large tile would lie outside C.
// Extents that do not fit the 32-bit coordinates of larger tiles count as small too.
template <class T>
bool is_small(const Gemm<T>& g, int batch) {
  constexpr int64_t kNarrow = 64, kMostExtent = int64_t{1} << 30;
  constexpr double kProducts = 1.6e6;  // a multiprocessor
  return double(g.m) * double(g.n) * double(g.k) * batch < kProducts * multiprocessors() ||
         std::min(g.m, g.n) <= kNarrow || std::max({g.m, g.n, g.k}) > kMostExtent;
}

}  // namespace fastgemm::FASTGEMM_TARGET
