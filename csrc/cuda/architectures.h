// Which GPUs a build has code for. The list of architectures is CMAKE_CUDA_ARCHITECTURES, separated by
// spaces: "80 90a-real 120-real". Compiled in every build.
//
//   80-real    machine code: runs on 8.y from 8.0 on, except Tegra GPUs (8.7), which run only code for 8.7
//   80-virtual PTX, which the driver compiles for every GPU from 8.0 on
//   80         both
//   90a-real   may use instructions that only 9.0 has (wgmma); machine code and PTX run on 9.0 only. So 90a
//              is the same, without PTX
//   100f-real  may use instructions of a family; runs on 10.y from 10.0 on
#pragma once

#include <string>
#include <string_view>

namespace fastgemm::cuda {

// Whether a build has code for a GPU of this compute capability (10 * major + minor).
bool has_image(std::string_view architectures, int capability);
// Whether that code is for sm_90a. The GPU prefers it to any other.
bool has_wgmma_image(std::string_view architectures, int capability);

// Why kernels cannot run on the GPU of this name, and what the user can do about it: kernels for every GPU
// since sm_80, and kernels for sm_90a. Empty if they can run.
std::string lacks_sm80(std::string_view architectures, std::string_view gpu, int capability);
std::string lacks_sm90a(std::string_view architectures, std::string_view gpu, int capability);

}  // namespace fastgemm::cuda
