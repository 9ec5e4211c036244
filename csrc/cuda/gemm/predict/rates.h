// Predicts each kernel of groups of uneven size and of packed weights (core/packed_weight.h) by a few rates,
// which were read off an H200. All groups count as groups of the mean size.
#pragma once

#include "core/gpu.h"
#include "core/problem.h"

namespace fastgemm::predict {

double grouped_wgmma_seconds(const GemmProblem&, const Gpu&);
double grouped_bf16x6_seconds(const GemmProblem&, const Gpu&);
double grouped_mma_seconds(const GemmProblem&, const Gpu&);
double scaled_wgmma_seconds(const GemmProblem&, const Gpu&);
double scaled_skinny_seconds(const GemmProblem&, const Gpu&);
double packed_wgmma_seconds(const GemmProblem&, const Gpu&);
double packed_tiles_seconds(const GemmProblem&, const Gpu&);
double packed_mma_seconds(const GemmProblem&, const Gpu&);

}  // namespace fastgemm::predict
