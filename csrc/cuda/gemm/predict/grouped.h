// The predicted times of kernels of groups of uneven size, for a size of groups that is their mean.
#pragma once

#include "core/gpu.h"
#include "core/problem.h"

namespace fastgemm::predict {

double grouped_wgmma_seconds(const GemmProblem&, const Gpu&);
double grouped_mma_seconds(const GemmProblem&, const Gpu&);

}  // namespace fastgemm::predict
