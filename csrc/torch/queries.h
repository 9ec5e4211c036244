// Answers questions of csrc/python about products: which problem a call would give to a kernel (its tuning
// key is made from that), and which kernel the last call ran. This header includes no header of torch, so
// that the Python module compiles without torch.
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

// The problem of a @ b with a newly allocated result, and the problem of transposing a. Both throw
// std::invalid_argument as the ops do.
GemmProblem problem_of(const Layout& a, const Layout& b, DType type);
TransposeProblem problem_of(const Layout& a, DType width);

// The kernel of this thread's last product; for a batch, the kernel of its last member. Each answer is given
// once: then it is empty until the next product. It is also empty if there was nothing to multiply.
std::string_view take_last_gemm_kernel();

}  // namespace fastgemm::torch_ops
