// The launchers of add on CUDA, one for each row of the table. nvcc compiles them into namespace cuda, and
// g++ (for csrc/simt) into namespace simt.
#pragma once

#include "core/context.h"

#define FASTGEMM_CUDA_ADD(DECLARE) \
  DECLARE(add_naive)               \
  DECLARE(add_staged)              \
  DECLARE(add_staged_transposed)   \
  DECLARE(add_vectorized)          \
  DECLARE(add_saturating)

#define FASTGEMM_DECLARE(name) void name(const AddProblem&, Context&);
namespace fastgemm::cuda {
FASTGEMM_CUDA_ADD(FASTGEMM_DECLARE)
}
namespace fastgemm::simt {
FASTGEMM_CUDA_ADD(FASTGEMM_DECLARE)
}
#undef FASTGEMM_DECLARE
