// What this build is.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fastgemm {

// Name and value pairs: version, compiler, cpp_standard, cuda_archs, ...
std::vector<std::pair<std::string, std::string>> build_info();

// A hash of the kernel table's rows: tuning results of another table do not apply.
std::string table_hash();

}  // namespace fastgemm
