// Whether the CUDA kernels can run here, on the current device. Compiled in every build.
#pragma once

#include <cstdint>

// A launcher as the tables name it: null where the CUDA code was not built.
#if FASTGEMM_HAS_CUDA
#define FASTGEMM_LAUNCHER(name) cuda::name
#else
#define FASTGEMM_LAUNCHER(name) nullptr
#endif

namespace fastgemm::cuda {

// Why a kernel that needs this architecture cannot run (not built, no GPU, too old a GPU); null when it can.
const char* unavailable_sm80();
// `too_little` also where a block may have less than this much shared memory.
const char* unavailable_sm80(int shared_bytes, const char* too_little);
const char* unavailable_sm90a();  // wgmma, setmaxnreg: compute capability 9.0 exactly

// Whether a kernel that has code for it may use wgmma, on the current device or on the one that this thread
// simulates.
bool has_wgmma();

// Multiprocessors of the current device, or of the one that this thread simulates; 1 without either.
int multiprocessors_here();

// Whether float64 runs at half the rate of float32, and not at 1/32 or 1/64 of it: on the current device, or
// on the one that this thread simulates. (CUDA C++ Programming Guide, "Throughput of Native Arithmetic
// Instructions": 32 or 64 results a cycle and multiprocessor, or 2.)
bool has_fast_float64();
constexpr bool has_fast_float64(int capability) {
  return capability == 80 || capability == 90 || capability == 100;
}

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
