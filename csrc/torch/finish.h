// Epilogues of kernels that do not apply them: the product first, and a pass that finishes it.
#pragma once

#include "core/finish.h"
#include "core/select.h"
#include "core/table.h"

namespace fastgemm::torch_ops {

// The product by which a row is chosen: without c, which the pass adds or the kernel's epilogue.
GemmProblem chosen_for(const GemmProblem&);

// The product by a kernel that needs the pass, and the pass. Products of 16-bit types go to float32 first
// where the kernel can store that.
void multiply_and_finish(const Kernel&, const GemmProblem&, Device, Context&);

}  // namespace fastgemm::torch_ops
