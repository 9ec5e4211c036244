#include "cuda/available.h"

#include "core/simulator.h"
#include "core/tuning.h"

#if FASTGEMM_HAS_CUDA

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "cuda/architectures.h"
#include "cuda/device/image.h"

namespace fastgemm::cuda {
namespace {

// A device, or a green context on it.
struct Known {
  std::string device, name, library, sm80, sm90a;  // an empty reason: available
  Gpu gpu;

  void set_multiprocessors(int count) {
    gpu.multiprocessors = count;
    name = device + ", " + std::to_string(count) + " multiprocessors";
    gpu.number = gpu_number(name);
  }
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
  const auto attribute = [&](cudaDeviceAttr name) {
    int value = 0;
    cudaDeviceGetAttribute(&value, name, device);
    return value;
  };
  k.device = properties.name;
  k.set_multiprocessors(properties.multiProcessorCount);
  const int capability = k.gpu.capability = 10 * properties.major + properties.minor;
  k.gpu.shared_bytes = int64_t(properties.sharedMemPerBlockOptin);
  k.gpu.l2_bytes = properties.l2CacheSize;
  // Clocks are in kHz. Memory transfers data twice a cycle. A GPU that does not report a clock gets the rates
  // of its architecture.
  const Gpu nominal = nominal_gpu(capability, properties.multiProcessorCount);
  const double clock = attribute(cudaDevAttrClockRate), memory = attribute(cudaDevAttrMemoryClockRate);
  k.gpu.clock = clock > 0 ? clock * 1e3 : nominal.clock;
  k.gpu.bandwidth =
      memory > 0 ? 2e3 * memory * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8 : nominal.bandwidth;
  k.sm80 = lacks_sm80(FASTGEMM_CUDA_ARCHS, k.device, capability);
  k.sm90a = lacks_sm90a(FASTGEMM_CUDA_ARCHS, k.device, capability);
  k.gpu.wgmma = k.sm90a.empty();
  return k;
}

// A function of the driver, looked up at first use so that the library loads without a driver. Null if the
// driver has no function of this name.
template <class Function>
Function driver_function(const char* name, int since) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t e =
      cudaGetDriverEntryPointByVersion(name, &function, unsigned(since), cudaEnableDefault, &found);
  if (e != cudaSuccess) cudaGetLastError();
  return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(function)
                                                                  : nullptr;
}

// The multiprocessors of a context: a green context has a part of its device's multiprocessors, any other
// context has all of them. 0 if the driver does not say.
int multiprocessors_of(CUcontext context) {
  static const auto resource = driver_function<decltype(&cuCtxGetDevResource)>("cuCtxGetDevResource", 12040);
  CUdevResource found{};
  if (!resource || resource(context, &found, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS) return 0;
  return int(found.sm.smCount);
}

// `device`, or a copy of it with the multiprocessors of the current context.
const Known& in_context(const Known& device) {
  static const auto context_now = driver_function<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent", 4000);
  static const auto id_of = driver_function<decltype(&cuCtxGetId)>("cuCtxGetId", 12000);
  CUcontext context = nullptr;
  unsigned long long id = 0;  // not the address: a later context may have the same one
  if (!context_now || !id_of || context_now(&context) != CUDA_SUCCESS || !context ||
      id_of(context, &id) != CUDA_SUCCESS)
    return device;
  thread_local struct {
    unsigned long long id;
    const Known* known = nullptr;
  } last;
  if (last.known && last.id == id) return *last.known;
  static std::mutex mutex;
  static std::unordered_map<unsigned long long, Known> contexts;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = contexts.try_emplace(id, device);
  const int count = is_new ? multiprocessors_of(context) : 0;
  if (count > 0 && count != device.gpu.multiprocessors) found->second.set_multiprocessors(count);
  last.id = id, last.known = &found->second;
  return found->second;
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
  return in_context(known[size_t(device)]);
}

const char* or_null(const std::string& s) { return s.empty() ? nullptr : s.c_str(); }

}  // namespace

const char* unavailable_sm80() { return or_null(current().sm80); }
const char* unavailable_sm90a() { return or_null(current().sm90a); }
const Gpu& gpu_here() { return simulating() ? simulated_gpu() : current().gpu; }
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
uint64_t fastgemm::current_gpu_number() { return fastgemm::cuda::current().gpu.number; }

#else

namespace fastgemm::cuda {

const char* unavailable_sm80() {
  return "this build has no CUDA kernels (build where nvcc is installed, with FASTGEMM_CUDA=1)";
}
const char* unavailable_sm90a() { return unavailable_sm80(); }
const Gpu& gpu_here() {
  static const Gpu none{};
  return simulating() ? simulated_gpu() : none;
}
const char* unavailable_library() { return unavailable_sm80(); }

}  // namespace fastgemm::cuda

const char* fastgemm::current_gpu_name() { return ""; }
uint64_t fastgemm::current_gpu_number() { return 0; }

#endif

const fastgemm::Gpu& fastgemm::current_gpu() { return fastgemm::cuda::gpu_here(); }
