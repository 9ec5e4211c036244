// Where a call ends whose element type or layout this build leaves out (device/dispatch.cuh).
#include <stdexcept>

#include "cuda/device/dispatch.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void not_built() {
  throw std::runtime_error("fastgemm: this build has no CUDA kernels for this element type or layout");
}

}  // namespace fastgemm::FASTGEMM_TARGET
