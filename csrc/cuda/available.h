// Whether the CUDA kernels can run here, on the current device. Compiled in every build.
#pragma once

#include <cstdint>

#include "core/gpu.h"

// A launcher as the tables name it: null where the CUDA code was not built.
#if FASTGEMM_HAS_CUDA
#define FASTGEMM_LAUNCHER(name) cuda::name
#else
#define FASTGEMM_LAUNCHER(name) nullptr
#endif

namespace fastgemm::cuda {

// Why a kernel that needs this architecture cannot run (not built, no GPU, too old a GPU); null when it can.
const char* unavailable_sm80();
const char* unavailable_sm90a();  // wgmma, setmaxnreg: compute capability 9.0 exactly

// The GPU that launches of this thread go to, with the multiprocessors of the current context (a green
// context has a part of them), or the one that this thread simulates. Without either: capability 0.
const Gpu& gpu_here();

// Whether a kernel that has code for it may use wgmma there.
inline bool has_wgmma() { return gpu_here().wgmma; }

const char* unavailable_library();  // what vendor libraries need: a build with CUDA, and a GPU

// Makes a device current for its lifetime; throws std::runtime_error.
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
