// What csrc/python asks about products without calling an op: which problem a call would hand to a kernel
// (its tuning key is made from that), and which kernel the last call ran. The header includes none of
// torch's, so that the Python module compiles without them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/problem.h"

namespace fastgemm::torch_ops {

// A tensor: its address, sizes and strides in elements.
struct Layout {
  uintptr_t address = 0;
  std::vector<int64_t> sizes, strides;
};

// The problem of a @ b with a newly allocated result, and that of the transposition of a. They throw
// std::invalid_argument as the ops would.
GemmProblem problem_of(const Layout& a, const Layout& b, DType type);
TransposeProblem problem_of(const Layout& a, DType width);

// The kernel that this thread's last product ran, for a batch that of its last member. It is told once: the
// answer is empty when asked again, and where there was nothing to multiply.
std::string_view take_last_gemm_kernel();

}  // namespace fastgemm::torch_ops
