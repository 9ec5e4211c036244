// Level 6: float32 from three products of bf16 planes, with 16 of float32's 24 bits and its whole range
// (parts/planes/scheme.cuh). docs/precision.md has its errors.
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_bf16x3(const GemmProblem& problem, Context& context) {
  problem.epilogue.asked() ? planes::gemm_by_planes<Fusing<planes::Bf16x3>>("bf16x3", problem, context)
                           : planes::gemm_by_planes<planes::Bf16x3>("bf16x3", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
