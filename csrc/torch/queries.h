// What is asked about products without a call of an op: the problem that one would hand to a kernel, under
// whose tuning key it is remembered, and which kernel the last one ran. Without torch's headers, for
// csrc/python.
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

// Of a @ b into a new tensor, and of the transposition of a. They throw std::invalid_argument as the ops
// would.
GemmProblem problem_of(const Layout& a, const Layout& b, DType type);
TransposeProblem problem_of(const Layout& a, DType width);

// The kernel that this thread's last product ran, of a batch that of its last member, once: empty when asked
// again, and where there was nothing to multiply.
std::string_view take_last_gemm_kernel();

}  // namespace fastgemm::torch_ops
