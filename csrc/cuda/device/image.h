// Which compiled image of this library a GPU runs.
#pragma once

#include <string>

namespace fastgemm::cuda {

// Why no GPU can be used, as a user can mend it: no driver, one that is too old, no GPU, or none that is
// visible. Empty where there is one.
std::string no_device();

struct DeviceImage {
  int device_count = 0;
  std::string device;   // name of device 0
  int capability = 0;   // of device 0, as 10 * major + minor
  int image_arch = 0;   // the architecture whose source device 0 ran, as 10 * major + minor
  std::string problem;  // why the above could not be found out; empty when it could
};

// Runs a one-thread kernel on device 0 that reports the architecture it was compiled for.
DeviceImage device_image();

}  // namespace fastgemm::cuda
