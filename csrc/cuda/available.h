// Whether the CUDA kernels can run here, on the current device. Compiled in every build.
#pragma once

#include <cstdint>

#include "core/gpu.h"

// A launcher for the tables. Null if the CUDA code was not built.
#if FASTGEMM_HAS_CUDA
#define FASTGEMM_LAUNCHER(name) cuda::name
#else
#define FASTGEMM_LAUNCHER(name) nullptr
#endif

namespace fastgemm::cuda {

// Why a kernel that needs this architecture cannot run: not built, no GPU, or too old a GPU. Null if it can.
const char* unavailable_sm80();
const char* unavailable_sm90a();  // wgmma, setmaxnreg: compute capability 9.0 exactly

// The GPU of this thread's launches, with the multiprocessors of the current context (a green context has
// only a part of them), or the GPU that this thread simulates. If there is neither, its capability is 0.
const Gpu& gpu_here();

// Whether kernels may use wgmma on that GPU.
inline bool has_wgmma() { return gpu_here().wgmma; }

const char* unavailable_library();  // vendor libraries need a build with CUDA, and a GPU

// Makes a device current for the lifetime of the guard. Throws std::runtime_error.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = -1;  // -1: it was current already
};

}  // namespace fastgemm::cuda
