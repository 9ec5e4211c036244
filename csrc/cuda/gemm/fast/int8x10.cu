// Level 6, int32 modulo 2^32 from tensor cores: ten products of unsigned byte planes, bit for bit
// (parts/planes/scheme.cuh). Large products exceed what 32-bit multiply-adds could reach at best
// (docs/weak_spots.md has its speed).
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_int8x10(const GemmProblem& problem, Context& context) {
  planes::gemm_by_planes<planes::Int8x10>("int8x10", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
