#include "cuda/gemm/predict/library_points.h"

namespace fastgemm::predict {
namespace {

constexpr bool N = false, T = true;  // layouts
#include "cuda/gemm/predict/library_points.def"

constexpr ShippedSeries kSeries[] = {
#define FASTGEMM_LIBRARY(points, type, precision, ...) \
  {DType::type, Precision::precision, {__VA_ARGS__}, points},
#include "cuda/gemm/predict/library_costs.def"
};

}  // namespace

GemmProblem product(const Sizes& s, bool a_transposed, bool b_transposed, DType type) {
  const auto stride = [&](int64_t elements) { return s.batch > 1 ? elements : 0; };
  GemmProblem p;
  p.type = type, p.out_type = result_type(type);
  p.batch = s.batch, p.m = s.m, p.n = s.n, p.k = s.k;
  p.a = {nullptr, a_transposed ? 1 : s.k, a_transposed ? s.m : 1, stride(s.m * s.k)};
  p.b = {nullptr, b_transposed ? 1 : s.n, b_transposed ? s.k : 1, stride(s.k * s.n)};
  p.out = {nullptr, s.n, 1, stride(s.m * s.n)};
  return p;
}

GemmProblem ShippedPoint::problem(DType type) const {
  return product({batch, m, n, k}, a_transposed, b_transposed, type);
}

std::span<const ShippedSeries> shipped_series() { return kSeries; }

}  // namespace fastgemm::predict
