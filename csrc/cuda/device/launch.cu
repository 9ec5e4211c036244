#include <atomic>
#include <new>
#include <stdexcept>

#include "cuda/available.h"
#include "cuda/device/launch.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

std::string text(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

}  // namespace

void launch_failed(const char* kernel, const LaunchShape& shape, cudaError_t error,
                   const std::source_location& where) {
  cudaGetLastError();  // the error is reported here; the next launch starts clean
  throw std::runtime_error(
      "fastgemm: launching kernel '" + std::string(kernel) + "' failed at " + where.file_name() + ":" +
      std::to_string(where.line()) + ": " + cudaGetErrorName(error) + " (code " + std::to_string(int(error)) +
      "): " + cudaGetErrorString(error) + "; grid " + text(shape.grid) + ", block " + text(shape.block) +
      ", dynamic shared memory " + std::to_string(shape.shared_bytes) + " bytes");
}

cudaError_t launch_kernel(const void* kernel, const LaunchShape& shape, void** arguments,
                          cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (shape.overlaps && gpu_here().wgmma) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {unsigned(shape.cluster), 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid, config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes, config.stream = stream;
  config.attrs = attributes, config.numAttrs = count;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

void allow_shared_bytes(const void* kernel, const char* name, const LaunchShape& shape, uint64_t& done,
                        const std::source_location& where) {
  const int device = current_device();
  std::atomic_ref<uint64_t> bits(done);
  if (device < 64 && (bits.load(std::memory_order_relaxed) >> device & 1)) return;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shape.shared_bytes));
  if (error != cudaSuccess) launch_failed(name, shape, error, where);
  if (device < 64) bits.fetch_or(uint64_t{1} << device, std::memory_order_relaxed);
}

int multiprocessors() { return gpu_here().multiprocessors; }
int64_t block_bytes() { return gpu_here().shared_bytes; }

}  // namespace fastgemm::FASTGEMM_TARGET
