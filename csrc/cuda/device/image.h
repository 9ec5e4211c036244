// Finds out which compiled image of this library a GPU runs.
#pragma once

#include <string>

namespace fastgemm::cuda {

// Why no GPU can be used, and what the user can do about it: no driver, too old a driver, no GPU, or no
// visible GPU. Empty if a GPU can be used.
std::string no_device();

struct DeviceImage {
  int device_count = 0;
  std::string device;   // the name of device 0
  int capability = 0;   // device 0's, as 10 * major + minor
  int image_arch = 0;   // the architecture whose source device 0 ran, as 10 * major + minor
  std::string problem;  // why the above could not be found out; empty if it could
};

// Runs a one-thread kernel on device 0 that reports the architecture it was compiled for.
DeviceImage device_image();

}  // namespace fastgemm::cuda
