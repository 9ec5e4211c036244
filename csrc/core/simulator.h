// The connection to the simulator, which runs CUDA kernels on a CPU. It is a module of its own (csrc/simt)
// and installs its rows here when it is loaded. While a thread simulates, the ops run these rows for CPU
// tensors.
#pragma once

#include <span>

#include "core/gpu.h"
#include "core/table.h"

namespace fastgemm {

struct Passes;

// Installs the rows of the CUDA kernels, with launchers that run on the CPU and Device::simt, and the passes.
// The strategies for this device are added to the rows, which must stay where they are. Changes
// tuning_version().
void install_simulator(std::span<const Kernel> rows, const Passes&);
std::span<const Kernel> simulated_kernels();

// Whether the calling thread simulates.
bool simulating();
void set_simulating(bool);
// The GPU that the calling thread simulates. It decides how much shared memory a block may have, how
// launchers divide work, and which kernels a level picks.
const Gpu& simulated_gpu();
void set_simulated_gpu(const Gpu&);

// The table with the rows for this device. It also has rows of other devices.
inline std::span<const Kernel> kernels_for(Device device) {
  return device == Device::simt ? simulated_kernels() : kernels();
}

}  // namespace fastgemm
