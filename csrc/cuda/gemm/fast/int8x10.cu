// Level 6: int32 products modulo 2^32 from tensor cores, as ten products of unsigned byte planes, exact in
// every bit (parts/planes/scheme.cuh). For large products it is faster than the peak of 32-bit multiply-adds
// (docs/weak_spots.md has its speed).
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_int8x10(const GemmProblem& problem, Context& context) {
  planes::gemm_by_planes<planes::Int8x10>("int8x10", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
