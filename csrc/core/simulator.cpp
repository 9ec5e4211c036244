#include "core/simulator.h"

namespace fastgemm {
namespace {

thread_local bool active = false;
thread_local Gpu gpu = nominal_gpu(90, 1);

}  // namespace

bool simulating() { return active; }
void set_simulating(bool on) { active = on; }
const Gpu& simulated_gpu() { return gpu; }
void set_simulated_gpu(const Gpu& g) { gpu = g; }

}  // namespace fastgemm
