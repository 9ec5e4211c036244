// How CUDA kernels run on a CPU. The simulator is a module of its own (csrc/simt). When it is loaded it
// installs its rows here, and while a thread simulates, the ops run those rows for tensors on the CPU.
#pragma once

#include <span>
#include <vector>

#include "core/doubled_rows.h"
#include "core/finish.h"
#include "core/gpu.h"
#include "core/mirror.h"
#include "core/table.h"

namespace fastgemm {

// The rows of the CUDA kernels with launchers that run on the CPU; their device is Device::simt. And the
// kernels that stand before complex products, after symmetric ones, and for epilogues.
using DoubleRows = void (*)(const DoubledRows&, Context&);
using MirrorRows = void (*)(const Mirror&, Context&);
using FinishProduct = void (*)(const Finish&, Context&);
void install_simulator(std::vector<Kernel> rows, DoubleRows, MirrorRows, FinishProduct);
std::span<const Kernel> simulated_kernels();
void simulated_double_rows(const DoubledRows&, Context&);
void simulated_mirror(const Mirror&, Context&);
void simulated_finish(const Finish&, Context&);

// Whether the calling thread simulates.
bool simulating();
void set_simulating(bool);
// The GPU that the calling thread simulates: what a block may have, how launchers share work, and which
// kernels a level picks depend on it.
const Gpu& simulated_gpu();
void set_simulated_gpu(const Gpu&);

// The table that holds the rows for problems on this device, among those of other devices.
inline std::span<const Kernel> kernels_for(Device device) {
  return device == Device::simt ? simulated_kernels() : kernels();
}

}  // namespace fastgemm
