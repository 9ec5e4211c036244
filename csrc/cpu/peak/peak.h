// The arithmetic ceiling of this machine, measured: multiply-adds on registers, nothing else.
#pragma once

#include "core/problem.h"

namespace fastgemm {

// Operations per second (a multiply-add counts as two) that `threads` threads reach together in about
// `seconds`. float64, float32 and int32; float16 computes in float32. 0 for other types. Throws
// std::runtime_error where the system does not start as many threads.
double measure_peak(DType, int threads, double seconds = 0.05);

}  // namespace fastgemm
