// What the shared object that holds the kernels says of itself: source lines of program counters, and the
// variables of its thread-local segment, where shared memory lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fastgemm::simt::symbols {

// The object's file, and the address that its program counters and symbols count from.
const std::string& path();
uintptr_t base();
bool in_image(uintptr_t address);  // its code and constants

// "csrc/cuda/gemm/ladder/level2_tiled.cu:41": the innermost line outside cuda/device and the standard
// library. Without binutils' addr2line, or debug information, the program counter.
std::string source_line(uint32_t pc);

std::string demangled(const char* mangled);

// A shared variable of a kernel (FASTGEMM_SHARED): its place in the thread-local segment.
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
