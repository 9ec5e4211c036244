#include "cuda/gemm/predict/grouped.h"

#include <algorithm>

#include "cuda/gemm/predict/plans.h"

namespace fastgemm::predict {

double grouped_wgmma_seconds(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kLaunch = 7e-6, kOfPeak = 0.6, kOfBandwidth = 0.6;
  const double m = double(p.m), n = double(p.n), k = double(p.k), groups = double(p.batch);
  const bool by_rows = p.groups.by == GroupedBy::m;
  // Each group has a tile that is half empty, and as many groups as there are rows read their weights.
  const double rows = by_rows ? m + groups * double(plans::group_columns(p.m, p.batch)) / 2 : m;
  const double elements = by_rows ? std::min(groups, m) * n * k + m * (n + k) : groups * m * n + k * (m + n);
  const double products =
      rows * n * k / (kOfPeak * multiply_adds(gpu, Unit::tensor, p.type) * gpu.clock * gpu.multiprocessors);
  return kLaunch + std::max(products, elements * element_size(p.type) / (kOfBandwidth * gpu.bandwidth));
}

}  // namespace fastgemm::predict
