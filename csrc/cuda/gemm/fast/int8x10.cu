// Level 6, int32 modulo 2^32 from tensor cores: ten products of unsigned byte planes, bit for bit
// (scheme.cuh).
//
// Measured on an H200, cold L2, the pre-pass included: 75 TOPS at 1024, 133 at 2048, 151 at 4096, 143 at
// 8192; with B along n 74, 132, 150 and 140. The limit of 32-bit multiply-adds is 33.
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_int8x10(const GemmProblem& problem, Context& context) {
  planes::gemm_by_planes<planes::Int8x10>("int8x10", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
