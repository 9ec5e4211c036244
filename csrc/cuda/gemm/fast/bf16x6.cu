// Level 6, float32 at float32 accuracy from tensor cores: six products of bf16 planes, in an order that makes
// the sums more accurate than float32 ones (scheme.cuh). Infinities, NaN and sums that overflow come out as
// in IEEE arithmetic (repair.cuh).
//
// Measured on an H200, cold L2, the pre-pass included, against cuBLAS SGEMM in the same run: 1.95 at 1024,
// 2.1 at 2048, 2.45 at 4096, 2.7 at 8192, 2.6 at 16384 (63, 104, 125, 129 and 134 TFLOPS). With B along n
// 1.88, 2.1 and 2.45 at 1024 to 4096, with A along m 1.62, 1.98 and 2.39. At 1024 the pre-pass takes 8 of 34
// us, the first copies 2, the products 15, handing sums over and adding them 3, the stores 2 and the end 2.
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_bf16x6(const GemmProblem& problem, Context& context) {
  planes::gemm_by_planes<planes::Bf16x6>("bf16x6", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
