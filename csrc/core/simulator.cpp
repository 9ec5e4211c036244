#include "core/simulator.h"

#include <utility>

namespace fastgemm {
namespace {

std::vector<Kernel>& rows() {
  static std::vector<Kernel> installed;
  return installed;
}

DoubleRows double_rows = nullptr;
MirrorRows mirror = nullptr;
RunEpiloguePass epilogue_pass = nullptr;

thread_local bool active = false;
thread_local Gpu gpu = nominal_gpu(90, 1);

}  // namespace

void install_simulator(std::vector<Kernel> kernels, DoubleRows doubling, MirrorRows mirroring,
                       RunEpiloguePass pass) {
  rows() = std::move(kernels);
  double_rows = doubling, mirror = mirroring, epilogue_pass = pass;
}
std::span<const Kernel> simulated_kernels() { return rows(); }

void simulated_double_rows(const DoubledRows& d, Context& context) { double_rows(d, context); }
void simulated_mirror(const Mirror& m, Context& context) { mirror(m, context); }
void simulated_epilogue_pass(const EpiloguePass& p, Context& context) { epilogue_pass(p, context); }

bool simulating() { return active; }
void set_simulating(bool on) { active = on; }
const Gpu& simulated_gpu() { return gpu; }
void set_simulated_gpu(const Gpu& g) { gpu = g; }

}  // namespace fastgemm
