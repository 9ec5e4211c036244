#include <utility>

#include "core/passes.h"
#include "core/simulator.h"

namespace fastgemm {
namespace {

std::vector<Kernel>& rows() {
  static std::vector<Kernel> installed;
  return installed;
}

Passes passes;

}  // namespace

void install_simulator(std::vector<Kernel> kernels, const Passes& given) {
  for (const Kernel& k : strategies_for(Device::simt)) kernels.push_back(k);
  rows() = std::move(kernels), passes = given;
}
std::span<const Kernel> simulated_kernels() { return rows(); }

const Passes& passes_of(Device device) {
  return device == Device::cpu ? cpu_passes() : device == Device::cuda ? cuda_passes() : passes;
}

}  // namespace fastgemm
