// The launchers of the rows, gemm_<name>. nvcc compiles them into namespace cuda, and g++ (for csrc/simt)
// into namespace simt.
#pragma once

#include "core/context.h"

// The numbers of the rows.
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
