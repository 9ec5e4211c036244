// Level 6, float32 at float32 accuracy on tensor cores: 6 products of bf16 planes, at 12 times the rate of
// float32 arithmetic and so at most twice as fast as that in the end... (see scheme.cuh).
#include "cuda/gemm/levels.h"
#include "cuda/gemm/packed/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_fp16x3(const GemmProblem& problem, Context& context) {
  packed::gemm_packed<packed::Fp16x3>("fp16x3", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
