#include "cpu/gemm/predict/points.h"

#include <algorithm>
#include <cmath>

#include "core/contiguous_product.h"

namespace fastgemm::cpu_predict {
namespace {

constexpr bool N = false, T = true;  // layouts
#include "cpu/gemm/predict/points.def"

float log2_of(int64_t n) { return std::log2(float(std::max<int64_t>(n, 1))); }

}  // namespace

Points::Place place_of(const GemmProblem& p, int threads) {
  constexpr float kBatch = 0.5f, kLayout = 2;
  return {log2_of(p.m),
          log2_of(p.n),
          log2_of(p.k),
          kBatch * log2_of(p.batch),
          p.a.col_stride == 1 ? 0 : kLayout,
          p.b.col_stride == 1 ? 0 : kLayout,
          kLayout * log2_of(threads)};
}

GemmProblem ShippedPoint::problem(DType type) const {
  return contiguous_product({batch, m, n, k}, a_transposed, b_transposed, type);
}

std::span<const ShippedSeries> shipped_series() { return kSeries; }

}  // namespace fastgemm::cpu_predict
