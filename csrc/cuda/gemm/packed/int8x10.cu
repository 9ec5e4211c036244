// Level 6, int32 modulo 2^32 on tensor cores.
#include "cuda/gemm/levels.h"
#include "cuda/gemm/packed/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_int8x10(const GemmProblem& problem, Context& context) {
  packed::gemm_packed<packed::Int8x10>("int8x10", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
