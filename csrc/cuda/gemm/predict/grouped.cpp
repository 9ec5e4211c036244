#include "cuda/gemm/predict/grouped.h"

#include <algorithm>

#include "cuda/gemm/predict/plans.h"

namespace fastgemm::predict {
namespace {

// The time of tiles of `rows` rows of a group, at these shares of the peak and of the bandwidth. Each group
// has a tile that is half empty, and as many groups as there are rows read their weights.
double seconds_of_groups(const GemmProblem& p, const Gpu& gpu, int rows, double of_peak,
                         double of_bandwidth) {
  constexpr double kLaunch = 7e-6;
  const double m = double(p.m), n = double(p.n) * (p.gated ? 2 : 1), k = double(p.k),
               groups = double(p.batch);
  const bool by_rows = p.groups.by == GroupedBy::m;
  const double all_rows = by_rows ? m + groups * rows / 2 : m;
  const double elements = by_rows ? std::min(groups, m) * n * k + m * (n + k) : groups * m * n + k * (m + n);
  const double peak = multiply_adds(gpu, Unit::tensor, p.type) * gpu.clock * gpu.multiprocessors;
  return kLaunch + std::max(all_rows * n * k / (of_peak * peak),
                            elements * element_size(p.type) / (of_bandwidth * gpu.bandwidth));
}

}  // namespace

double grouped_wgmma_seconds(const GemmProblem& p, const Gpu& gpu) {
  return seconds_of_groups(p, gpu, plans::group_columns(p.m, p.batch), 0.7, 0.6);
}

double grouped_mma_seconds(const GemmProblem& p, const Gpu& gpu) {
  return seconds_of_groups(p, gpu, 128, gpu.wgmma ? 0.42 : 0.7, 0.4);
}

}  // namespace fastgemm::predict
