// For rows that launch other rows.
#pragma once

#include "core/context.h"
#include "core/problem.h"
#include "core/table.h"
#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Calls the row's launcher. Throws std::runtime_error if the row has none in this build.
void launch_row(const Kernel*, const GemmProblem&, Context&);
// Launches the row of this library that is predicted to be the fastest.
void launch_fastest_row(const GemmProblem&, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
