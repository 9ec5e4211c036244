// Launches a row of the kernel table for an op.
#pragma once

#include "core/select.h"
#include "torch/op_context.h"

namespace fastgemm::torch_ops {

// The device of a call, and its context.
struct Place {
  OpContext& context;
  Device device;
  int threads;
};

// Launches the kernel and returns the one that ran. If memory runs out and the choice is free, other kernels
// are tried, which may need less; the scratch memory of the call is then freed first. They are also tried if
// torch's own product fails: torch allocates cuBLAS's workspace itself, and does not say whether lack of
// memory was the reason. Throws OutOfMemory.
const Kernel& launch_row(const Kernel& first, const GemmProblem&, const Choice&, const Place&);

}  // namespace fastgemm::torch_ops
