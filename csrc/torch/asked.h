// The problem that a call would hand to a kernel, for whoever asks before there is a call: which kernel would
// run it, and under which tuning key it is remembered. Without torch's headers, for csrc/python.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/problem.h"

namespace fastgemm::torch_ops {

// A tensor: its address, sizes and strides in elements.
struct Layout {
  uintptr_t address = 0;
  std::vector<int64_t> sizes, strides;
};

struct GemmCall {
  Layout a, b;
  std::optional<Layout> c, out;  // without an out, one is allocated
  DType type = DType::f32, out_type = DType::f32;
  Precision precision = Precision::ieee;
  double alpha = 1.0, beta = 0.0;
};

// These throw std::invalid_argument as the op would.
GemmProblem problem_of(const GemmCall&);
TransposeProblem problem_of(const Layout& a, DType width);

}  // namespace fastgemm::torch_ops
