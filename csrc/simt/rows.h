// The CUDA kernels as rows that run on the simulator.
#pragma once

#include <vector>

#include "core/doubled_rows.h"
#include "core/epilogue_pass.h"
#include "core/mirror.h"
#include "core/table.h"

namespace fastgemm::simt {

// Every row of the kernel table that has a CUDA kernel of this project, with a launcher that simulates it.
// Launchers without a row in the table get rows of level 0.
std::vector<Kernel> rows();

void simulate_double_rows(const DoubledRows&, Context&);
void simulate_mirror(const Mirror&, Context&);
void simulate_epilogue_pass(const EpiloguePass&, Context&);

}  // namespace fastgemm::simt
