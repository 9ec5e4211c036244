// Measures the arithmetic peak of this machine: multiply-adds on registers, without memory accesses.
#pragma once

#include "core/problem.h"

namespace fastgemm {

// Operations per second that `threads` threads reach together, measured for about `seconds`. A multiply-add
// counts as two. For float64, float32 and int32; float16 computes in float32; 0 for other types. Throws
// std::runtime_error if the system does not start all threads.
double measure_peak(DType, int threads, double seconds = 0.05);

}  // namespace fastgemm
