// The CUDA kernels as rows that run on the simulator.
#pragma once

#include <vector>

#include "core/passes.h"

namespace fastgemm::simt {

// Every row of the kernel table that has a CUDA kernel of this project, with a launcher that simulates it.
// Launchers without a row in the table get rows of level 0.
std::vector<Kernel> rows();

// The passes, simulated.
Passes passes();

}  // namespace fastgemm::simt
