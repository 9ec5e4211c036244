// Registers and shared memory of the kernels, which only nvcc knows.
#pragma once

namespace fastgemm::simt {

// JSON: for each architecture and kernel, the registers of a thread and the bytes of static shared memory.
// tools/check_sass.py reads them from machine code and writes cuda_resources.def.
const char* resources();

}  // namespace fastgemm::simt
