// Products with an epilogue that their kernel does not apply: the product first, then the epilogue pass.
#pragma once

#include "core/epilogue_pass.h"
#include "core/select.h"
#include "core/table.h"

namespace fastgemm::torch_ops {

// The problem for which a row is chosen. With an epilogue, c is left out: the epilogue adds it.
GemmProblem chosen_for(const GemmProblem&);

// Runs a kernel that needs the pass, then the pass. Products of 16-bit types are stored as float32 in between
// if the kernel can store it, so that results are rounded once.
void multiply_then_pass(const Kernel&, const GemmProblem&, Device, Context&);

}  // namespace fastgemm::torch_ops
