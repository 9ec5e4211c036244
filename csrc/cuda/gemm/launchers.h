// The launchers of the rows: gemm_<name>, compiled by nvcc into namespace cuda, by g++ for csrc/simt into
// namespace simt.
#pragma once

#include "core/context.h"

// The most shared memory that a block takes in rows with needs = kLargeBlock.
namespace fastgemm {
inline constexpr int kLargeBlockBytes = 144 << 10;
}

#define FASTGEMM_ROW(name, ...) void gemm_##name(const GemmProblem&, Context&);
namespace fastgemm::cuda {
#include "cuda/gemm/rows.def"
}
#define FASTGEMM_ROW(name, ...) void gemm_##name(const GemmProblem&, Context&);
namespace fastgemm::simt {
#include "cuda/gemm/rows.def"
}
