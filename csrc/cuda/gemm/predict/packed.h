// Predicts products with packed weights (core/packed_weight.h): each kernel by a few rates, which were read
// off an H200.
#pragma once

#include "core/gpu.h"
#include "core/problem.h"

namespace fastgemm::predict {

double packed_wgmma_seconds(const GemmProblem&, const Gpu&);
double packed_tiles_seconds(const GemmProblem&, const Gpu&);
double packed_mma_seconds(const GemmProblem&, const Gpu&);

}  // namespace fastgemm::predict
