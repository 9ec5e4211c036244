#include "core/simulator.h"

#include <utility>

#include "core/passes.h"

namespace fastgemm {
namespace {

std::vector<Kernel>& rows() {
  static std::vector<Kernel> installed;
  return installed;
}

Passes passes;

thread_local bool active = false;
thread_local Gpu gpu = nominal_gpu(90, 1);

}  // namespace

void install_simulator(std::vector<Kernel> kernels, const Passes& given) {
  for (const Kernel& k : strategies_for(Device::simt)) kernels.push_back(k);
  rows() = std::move(kernels), passes = given;
}
std::span<const Kernel> simulated_kernels() { return rows(); }

const Passes& passes_of(Device device) {
  return device == Device::cpu ? cpu_passes() : device == Device::cuda ? cuda_passes() : passes;
}

bool simulating() { return active; }
void set_simulating(bool on) { active = on; }
const Gpu& simulated_gpu() { return gpu; }
void set_simulated_gpu(const Gpu& g) { gpu = g; }

}  // namespace fastgemm
