// Describes this build of the library.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fastgemm {

// Name and value pairs: version, compiler, cpp_standard, cuda_archs, ...
std::vector<std::pair<std::string, std::string>> build_info();

// The GPU that would run the CUDA kernels and the compiled image that it would use, or why there is none. It
// runs a kernel of one thread, so it is not part of build_info().
std::string cuda_device();

// A hash of the kernel table's rows. Tuning results that were measured with another table do not apply.
std::string table_hash();

}  // namespace fastgemm
