#include "cuda/available.h"

#include "core/simulator.h"
#include "core/tuning.h"

#if FASTGEMM_HAS_CUDA

#include <cuda_runtime_api.h>

#include <array>
#include <mutex>
#include <stdexcept>
#include <string>

#include "cuda/device/image.h"

namespace fastgemm::cuda {
namespace {

struct Known {
  std::string name, library, sm80, sm90a;  // empty reason: available
  size_t shared_bytes = 0;                 // a block's most
  int capability = 0;                      // 10 * major + minor
  int multiprocessors = 1;
  uint64_t number = 0;
};

std::string error_text(cudaError_t e) {
  return std::string(cudaGetErrorName(e)) + " (" + cudaGetErrorString(e) + ")";
}

Known examine(int device) {
  Known k;
  cudaDeviceProp properties;
  if (const cudaError_t e = cudaGetDeviceProperties(&properties, device); e != cudaSuccess) {
    k.library = k.sm80 = k.sm90a = "no usable CUDA device: " + error_text(e);
    return k;
  }
  k.name = std::string(properties.name) + ", " + std::to_string(properties.multiProcessorCount) +
           " multiprocessors";
  k.number = gpu_number(k.name);
  k.shared_bytes = properties.sharedMemPerBlockOptin;
  k.multiprocessors = properties.multiProcessorCount;
  const int capability = k.capability = 10 * properties.major + properties.minor;
  const std::string here = std::string(properties.name) + " has compute capability " +
                           std::to_string(capability / 10) + "." + std::to_string(capability % 10);
  const std::string archs = FASTGEMM_CUDA_ARCHS;
  if (capability < 80)
    k.sm80 = "it needs compute capability 8.0, and " + here;
  else if (!has_image(archs, capability))
    k.sm80 = "this build holds code for " + archs + " only, and " + here +
             " (build with FASTGEMM_CUDA_ARCHS=" + std::to_string(capability) + "-real)";
  k.sm90a = k.sm80;
  if (k.sm90a.empty() && capability != 90)
    k.sm90a = "it needs compute capability 9.0, and " + here;
  else if (k.sm90a.empty() && archs.find("90a") == std::string::npos)
    k.sm90a = "this build holds code for " + archs + "; it needs 90a-real in FASTGEMM_CUDA_ARCHS";
  return k;
}

const Known& current() {
  static constexpr size_t kMostDevices = 64;
  static std::array<std::once_flag, kMostDevices> once;
  static std::array<Known, kMostDevices> known;
  static const Known none = [] {
    Known k;
    const std::string why = no_device();
    k.library = "no CUDA device: " + (why.empty() ? "the current one cannot be used" : why);
    k.sm80 = k.sm90a = k.library;
    return k;
  }();
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || size_t(device) >= kMostDevices) {
    cudaGetLastError();
    return none;
  }
  std::call_once(once[size_t(device)], [&] { known[size_t(device)] = examine(device); });
  return known[size_t(device)];
}

const char* or_null(const std::string& s) { return s.empty() ? nullptr : s.c_str(); }

}  // namespace

const char* unavailable_sm80() { return or_null(current().sm80); }
const char* unavailable_sm80(int shared_bytes, const char* too_little) {
  const char* reason = unavailable_sm80();
  return reason || current().shared_bytes >= size_t(shared_bytes) ? reason : too_little;
}
const char* unavailable_sm90a() { return or_null(current().sm90a); }
bool has_wgmma() { return simulating() ? simulated_capability() == 90 : unavailable_sm90a() == nullptr; }
int multiprocessors_here() { return simulating() ? simulated_multiprocessors() : current().multiprocessors; }
bool has_fast_float64() {
  return has_fast_float64(simulating() ? simulated_capability() : current().capability);
}
const char* unavailable_library() { return or_null(current().library); }

DeviceGuard::DeviceGuard(int device) {
  int now = 0;
  cudaError_t e = cudaGetDevice(&now);
  if (e == cudaSuccess && now == device) return;
  if (e == cudaSuccess) e = cudaSetDevice(device);
  if (e != cudaSuccess)
    throw std::runtime_error("fastgemm: cannot use cuda:" + std::to_string(device) + ": " + error_text(e));
  before_ = now;
}

DeviceGuard::~DeviceGuard() {
  if (before_ >= 0) cudaSetDevice(before_);
}

}  // namespace fastgemm::cuda

const char* fastgemm::current_gpu_name() { return fastgemm::cuda::current().name.c_str(); }
uint64_t fastgemm::current_gpu_number() { return fastgemm::cuda::current().number; }

#else

namespace fastgemm::cuda {

const char* unavailable_sm80() {
  return "this build has no CUDA kernels (build where nvcc is installed, with FASTGEMM_CUDA=1)";
}
const char* unavailable_sm80(int, const char*) { return unavailable_sm80(); }
const char* unavailable_sm90a() { return unavailable_sm80(); }
bool has_wgmma() { return simulating() && simulated_capability() == 90; }
int multiprocessors_here() { return simulating() ? simulated_multiprocessors() : 1; }
bool has_fast_float64() { return simulating() && has_fast_float64(simulated_capability()); }
const char* unavailable_library() { return unavailable_sm80(); }

}  // namespace fastgemm::cuda

const char* fastgemm::current_gpu_name() { return ""; }
uint64_t fastgemm::current_gpu_number() { return 0; }

#endif
