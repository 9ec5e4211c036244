// Which GPUs a build has code for, by its list of architectures as CMAKE_CUDA_ARCHITECTURES names them,
// separated by spaces: "80 90a-real 120-real". Compiled in every build.
//
//   80-real    machine code: runs on 8.y from 8.0 on, but for GPUs of Tegra (8.7), which run their own alone
//   80-virtual PTX, which the driver compiles: for every GPU from 8.0 on
//   80         both
//   90a-real   with instructions of 9.0 alone (wgmma), in machine code or PTX: runs there and nowhere else
//   100f-real  with instructions of a family, here 10.y from 10.0 on
#pragma once

#include <string>
#include <string_view>

namespace fastgemm::cuda {

// Whether there is code for a GPU of this compute capability (10 * major + minor).
bool has_image(std::string_view architectures, int capability);
// Whether that is code for sm_90a. The GPU takes it before any other.
bool has_wgmma_image(std::string_view architectures, int capability);

// Why the kernels cannot run on the GPU of this name, as a user can mend it: those of every GPU since sm_80,
// those of sm_90a. Empty where they can.
std::string lacks_sm80(std::string_view architectures, std::string_view gpu, int capability);
std::string lacks_sm90a(std::string_view architectures, std::string_view gpu, int capability);

}  // namespace fastgemm::cuda
