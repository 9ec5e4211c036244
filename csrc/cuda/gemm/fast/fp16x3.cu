// Level 6: float32 from three products of fp16 planes, with 22 of float32's 24 bits. Rows are scaled by
// powers of two first (parts/planes/scheme.cuh). docs/precision.md has its errors, docs/weak_spots.md its
// speed.
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_fp16x3(const GemmProblem& problem, Context& context) {
  problem.epilogue.asked() ? planes::gemm_by_planes<Fusing<planes::Fp16x3>>("fp16x3", problem, context)
                           : planes::gemm_by_planes<planes::Fp16x3>("fp16x3", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
