#include "cuda/gemm/predict/library_points.h"

#include "core/contiguous_product.h"

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
  return contiguous_product({batch, m, n, k}, a_transposed, b_transposed, type);
}

std::span<const ShippedSeries> shipped_series() { return kSeries; }

}  // namespace fastgemm::predict
