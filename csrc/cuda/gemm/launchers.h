// The launchers of the rows: gemm_<name>, compiled by nvcc into namespace cuda, by g++ for csrc/simt into
// namespace simt.
#pragma once

#include "core/context.h"

// The rows by number.
namespace fastgemm {
#define FASTGEMM_ROW(name, ...) name,
enum class Row : uint8_t {
#include "cuda/gemm/rows.def"
};
}  // namespace fastgemm

#define FASTGEMM_ROW(name, ...) void gemm_##name(const GemmProblem&, Context&);
namespace fastgemm::cuda {
#include "cuda/gemm/rows.def"
}
#define FASTGEMM_ROW(name, ...) void gemm_##name(const GemmProblem&, Context&);
namespace fastgemm::simt {
#include "cuda/gemm/rows.def"
}
