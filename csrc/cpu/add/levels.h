// The rungs of add. Each takes any AddProblem; add_parallel divides a problem among threads.
#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

using AddKernel = void (*)(const AddProblem&);

void add_naive(const AddProblem&);
void add_staged(const AddProblem&);

// Compiled once per instruction set.
#define FASTGEMM_DECLARE_ADD_KERNELS(isa) \
  namespace isa {                         \
  void add_vectorized(const AddProblem&); \
  void add_streaming(const AddProblem&);  \
  }
FASTGEMM_DECLARE_ADD_KERNELS(baseline)
FASTGEMM_DECLARE_ADD_KERNELS(avx2)
FASTGEMM_DECLARE_ADD_KERNELS(avx512)
#undef FASTGEMM_DECLARE_ADD_KERNELS

// Runs the kernel on all threads, each on a part of the problem.
void add_parallel(const AddProblem&, Context&, AddKernel);

}  // namespace fastgemm
