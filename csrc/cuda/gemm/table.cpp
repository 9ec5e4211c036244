// The rows of GEMM on CUDA.
#include "core/table.h"

#include "cuda/available.h"
#include "cuda/gemm/levels.h"

namespace fastgemm {
namespace {

using Gemm = void (*)(const GemmProblem&, Context&);

#if FASTGEMM_HAS_CUDA
#define FASTGEMM_LAUNCHER(name) cuda::name
#else
#define FASTGEMM_LAUNCHER(name) nullptr
#endif

constexpr Kernel row(int level, std::string_view name, DTypeSet types, std::string_view summary, Gemm gemm,
                     Role role = Role::rung) {
  return {.op = Op::gemm,
          .device = Device::cuda,
          .level = level,
          .name = name,
          .dtypes = types,
          .needs = "sm_80",
          .summary = summary,
          .role = role,
          .gemm = gemm,
          .unavailable = cuda::unavailable_sm80};
}

constexpr Kernel kRows[] = {
    row(1, "naive", kGemmTypes, "one thread an element of C, a warp along a row of C",
        FASTGEMM_LAUNCHER(gemm_naive)),
    row(1, "naive_uncoalesced", kGemmTypes, "the same, a warp along a column of C: 32 sectors a request",
        FASTGEMM_LAUNCHER(gemm_naive_uncoalesced), Role::companion),
};

}  // namespace

std::span<const Kernel> cuda_gemm_kernels() { return kRows; }

}  // namespace fastgemm
