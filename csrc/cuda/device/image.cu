#include <cuda_runtime.h>

#include <cstdlib>

#include "cuda/device/image.h"

namespace fastgemm::cuda {
namespace {

__global__ void write_arch(int* arch) {
#if defined(__CUDA_ARCH__)
  *arch = __CUDA_ARCH__ / 10;
#endif
}

std::string version(int number) {  // 13000 is 13.0
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string text(const char* call, cudaError_t e) {
  return std::string(call) + ": " + cudaGetErrorName(e) + " (" + cudaGetErrorString(e) + ")";
}

std::string run(DeviceImage& found) {
  if (const std::string reason = no_device(); !reason.empty()) return reason;
  if (const cudaError_t e = cudaGetDeviceCount(&found.device_count); e != cudaSuccess)
    return text("cudaGetDeviceCount", e);
  cudaDeviceProp properties;
  if (const cudaError_t e = cudaGetDeviceProperties(&properties, 0); e != cudaSuccess)
    return text("cudaGetDeviceProperties", e);
  found.device = properties.name;
  found.capability = 10 * properties.major + properties.minor;

  int* arch = nullptr;
  if (const cudaError_t e = cudaMalloc(&arch, sizeof(int)); e != cudaSuccess) return text("cudaMalloc", e);
  void* arguments[] = {&arch};
  cudaError_t e =
      cudaLaunchKernel(reinterpret_cast<const void*>(&write_arch), dim3(1), dim3(1), arguments, 0, nullptr);
  if (e == cudaSuccess) e = cudaMemcpy(&found.image_arch, arch, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(arch);
  return e == cudaSuccess ? "" : text("write_arch<1, 1>", e);
}

}  // namespace

std::string no_device() {
  int count = 0, driver = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e == cudaSuccess && count > 0) return "";
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
    return "no NVIDIA driver is installed (libcuda.so.1 was not found)";
  if (e == cudaErrorInsufficientDriver)
    return "the NVIDIA driver is for CUDA " + version(driver) + ", older than this build's CUDA " +
           version(CUDART_VERSION) + ": update the driver, or build with an older toolkit";
  if (e != cudaSuccess && e != cudaErrorNoDevice) return text("cudaGetDeviceCount", e);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? "CUDA_VISIBLE_DEVICES=\"" + std::string(visible) + "\" hides every GPU, or names none"
                 : std::string("the NVIDIA driver finds no GPU");
}

DeviceImage device_image() {
  DeviceImage found;
  found.problem = run(found);
  return found;
}

}  // namespace fastgemm::cuda
