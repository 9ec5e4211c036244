// Entry points of the kernels, before and after the choice of an instruction set.
#pragma once

#include "core/context.h"

// Every kernel takes a problem with m, n, k, batch > 0 and contiguous rows of out; table.cpp sees to it.
#define FASTGEMM_CPU_GEMM_ENTRIES                            \
  void gemm_simd(const GemmProblem& p, Context& ctx);        \
  void gemm_microkernel(const GemmProblem& p, Context& ctx); \
  void gemm_pipelined(const GemmProblem& p, Context& ctx);

namespace fastgemm {
void gemm_naive(const GemmProblem& p, Context& ctx);
void gemm_blocked(const GemmProblem& p, Context& ctx);
void gemm_packed(const GemmProblem& p, Context& ctx);
namespace baseline {
FASTGEMM_CPU_GEMM_ENTRIES
}
#if defined(__x86_64__)
namespace avx2 {
FASTGEMM_CPU_GEMM_ENTRIES
}
namespace avx512 {
FASTGEMM_CPU_GEMM_ENTRIES
}
#endif
}  // namespace fastgemm
