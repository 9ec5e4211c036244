#pragma once

#include "core/context.h"
#include "core/cpu.h"
#include "core/triangle.h"

namespace fastgemm {

// out must have contiguous rows, and the symmetry must be known.
void gemm_symmetric(const GemmProblem&, Context&);
double symmetric_seconds(const GemmProblem&, const Cpu&, int threads);

}  // namespace fastgemm
