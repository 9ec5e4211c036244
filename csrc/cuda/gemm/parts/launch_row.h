// Rows that launch other rows.
#pragma once

#include "core/context.h"
#include "core/problem.h"
#include "core/table.h"
#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// By its launcher in this build. Throws std::runtime_error for a row that has none.
void launch_row(const Kernel*, const GemmProblem&, Context&);
// The row of ours that is predicted to be the fastest.
void launch_fastest_row(const GemmProblem&, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
