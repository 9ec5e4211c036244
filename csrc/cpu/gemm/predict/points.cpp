#include "cpu/gemm/predict/points.h"

#include <algorithm>
#include <cmath>

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
  const int64_t rows = m, columns = n, depth = k;
  const auto stride = [&](int64_t elements) { return batch > 1 ? elements : 0; };
  GemmProblem p;
  p.type = type, p.out_type = result_type(type);
  p.batch = batch, p.m = m, p.n = n, p.k = k;
  p.a = {nullptr, a_transposed ? 1 : depth, a_transposed ? rows : 1, stride(rows * depth)};
  p.b = {nullptr, b_transposed ? 1 : columns, b_transposed ? depth : 1, stride(depth * columns)};
  p.out = {nullptr, columns, 1, stride(rows * columns)};
  return p;
}

std::span<const ShippedSeries> shipped_series() { return kSeries; }

}  // namespace fastgemm::cpu_predict
