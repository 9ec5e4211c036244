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

}  // namespace fastgemm::predict
