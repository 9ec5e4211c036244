#include "core/simulator.h"

#include <utility>

namespace fastgemm {
namespace {

std::vector<Kernel>& rows() {
  static std::vector<Kernel> installed;
  return installed;
}

thread_local bool active = false;
thread_local int capability = 0, multiprocessors = 1;

}  // namespace

void install_simulator(std::vector<Kernel> kernels) { rows() = std::move(kernels); }
std::span<const Kernel> simulated_kernels() { return rows(); }

bool simulating() { return active; }
void set_simulating(bool on) { active = on; }
int simulated_capability() { return capability; }
int simulated_multiprocessors() { return multiprocessors; }
void set_simulated_gpu(int c, int m) { capability = c, multiprocessors = m; }

}  // namespace fastgemm
