// Which compiled image of this library a GPU runs.
#pragma once

#include <string>
#include <string_view>

namespace fastgemm::cuda {

// Whether a build for `architectures` (as CMAKE_CUDA_ARCHITECTURES, separated by spaces: "80-real 90a-real
// 90-virtual") holds code for a GPU of this compute capability (10 * major + minor).
bool has_image(std::string_view architectures, int capability);

// Why no GPU can be used, as a user can mend it: no driver, one that is too old, no GPU, or none that is
// visible. Empty where there is one.
std::string no_device();

struct DeviceImage {
  int device_count = 0;
  std::string device;   // name of device 0
  int capability = 0;   // of device 0, as 10 * major + minor
  int image_arch = 0;   // architecture of the code that device 0 ran, as 10 * major + minor
  std::string problem;  // why the above could not be found out; empty when it could
};

// Runs a one-thread kernel on device 0 that reports the architecture it was compiled for.
DeviceImage device_image();

}  // namespace fastgemm::cuda
