// The launchers of transpose on CUDA, one for each row of the table. nvcc compiles them into namespace cuda,
// and g++ (for csrc/simt) into namespace simt.
#pragma once

#include "core/context.h"

#define FASTGEMM_CUDA_TRANSPOSE(DECLARE) \
  DECLARE(transpose_naive)               \
  DECLARE(transpose_naive_strided_read)  \
  DECLARE(transpose_shared)              \
  DECLARE(transpose_padded)              \
  DECLARE(transpose_vectorized)          \
  DECLARE(transpose_saturating)          \
  DECLARE(transpose_pipelined)

#define FASTGEMM_DECLARE(name) void name(const TransposeProblem&, Context&);
namespace fastgemm::cuda {
FASTGEMM_CUDA_TRANSPOSE(FASTGEMM_DECLARE)
}
namespace fastgemm::simt {
FASTGEMM_CUDA_TRANSPOSE(FASTGEMM_DECLARE)
}
#undef FASTGEMM_DECLARE
