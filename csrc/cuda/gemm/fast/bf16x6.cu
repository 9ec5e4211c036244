// Level 6, float32 at float32 accuracy from tensor cores: six products of bf16 planes, in an order that
// makes the sums more accurate than float32 ones (parts/planes/scheme.cuh). Infinities, NaN and sums that
// overflow come out as in IEEE arithmetic (parts/planes/repair.cuh). docs/precision.md has its errors,
// docs/weak_spots.md its speed.
//
// The pre-pass moves n^2 elements for n^3 multiply-adds, so that small products gain least.
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_bf16x6(const GemmProblem& problem, Context& context) {
  planes::gemm_by_planes<planes::Bf16x6>("bf16x6", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
