// CUDA kernels on a CPU. The simulator is a module of its own (csrc/simt); when it is loaded it puts its rows
// here, and while a thread simulates, the ops run those for tensors on the CPU.
#pragma once

#include <span>
#include <vector>

#include "core/table.h"

namespace fastgemm {

// The rows of the CUDA kernels with launchers that run on the CPU; their device is Device::simt.
void install_simulator(std::vector<Kernel> rows);
std::span<const Kernel> simulated_kernels();

// Of the calling thread.
bool simulating();
void set_simulating(bool);
// The compute capability of the GPU that it simulates, 90 for 9.0: on it depends what levels suit.
int simulated_capability();
void set_simulated_capability(int);

// The rows that a problem on this device may choose from, and others.
inline std::span<const Kernel> kernels_for(Device device) {
  return device == Device::simt ? simulated_kernels() : kernels();
}

}  // namespace fastgemm
