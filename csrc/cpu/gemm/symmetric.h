#pragma once

#include "core/context.h"
#include "core/cpu.h"
#include "core/triangle.h"

namespace fastgemm {

// out has contiguous rows, and symmetry is known.
void gemm_symmetric(const GemmProblem&, Context&);
double symmetric_seconds(const GemmProblem&, const Cpu&, int threads);

}  // namespace fastgemm
