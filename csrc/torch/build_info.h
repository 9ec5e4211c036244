// What this build is.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fastgemm {

// Name and value pairs: version, compiler, cpp_standard, cuda_archs, ...
std::vector<std::pair<std::string, std::string>> build_info();

// The GPU that would run the CUDA kernels and which of the compiled images it takes, or why there is none.
// Runs a one-thread kernel, so it is asked for by name only.
std::string cuda_device();

// A hash of the kernel table's rows: tuning results of another table do not apply.
std::string table_hash();

}  // namespace fastgemm
