// Finds functions in the vendor libraries that torch has loaded. They have the version that torch uses, and
// need not be linked or searched for. This header is used only if the libraries' headers were found.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace fastgemm {

// Null if the library is not loaded.
inline void* loaded_library(const std::string& soname) {
  return dlopen(soname.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

template <class Function>
void find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw std::runtime_error(std::string("fastgemm: the library has no ") + name);
}

inline void check_vendor(int status, const char* call) {
  if (status != 0)
    throw std::runtime_error(std::string("fastgemm: ") + call + " failed with status " +
                             std::to_string(status));
}

inline int current_cuda_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

// Creating a handle allocates memory. By default this is forbidden while a stream is captured into a graph.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace fastgemm
