// Reads symbols of the shared object that contains the kernels: source lines of program counters, and the
// variables in its thread-local segment, which holds shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fastgemm::simt::symbols {

// The object's file, and the address to which its program counters and symbols are relative.
const std::string& path();
uintptr_t base();
bool in_image(uintptr_t address);  // whether it is in the object's code or constants

// The source line of a program counter, such as "csrc/cuda/gemm/ladder/level2_tiled.cu:41". It is the
// innermost line outside of cuda/device and the standard library. Without debug information or addr2line of
// binutils, the program counter itself.
std::string source_line(uint32_t pc);

std::string demangled(const char* mangled);

// A shared variable of a kernel (FASTGEMM_SHARED), and its place in the thread-local segment.
struct Variable {
  std::string name;
  size_t offset, bytes;
};
const std::vector<Variable>& shared_variables();

// The calling thread's copy of that segment.
struct Segment {
  uintptr_t begin = 0;
  size_t bytes = 0;
  bool operator==(const Segment&) const = default;
};
Segment thread_segment();

}  // namespace fastgemm::simt::symbols
