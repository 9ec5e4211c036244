// Level 6, float32 at float32 accuracy from tensor cores: six products of bf16 planes, in an order that makes
// the sums more accurate than float32 ones (scheme.cuh). Infinities, NaN and sums that overflow come out as
// in IEEE arithmetic (repair.cuh).
//
// Measured on an H200, cold L2, the pre-pass included, against cuBLAS SGEMM in the same run: 1.75 at
// 1024, 2.0 at 2048, 2.45 at 4096, 2.6 at 8192 and 1.8 to 1.9 at 16384 (93 to 122 TFLOPS from 2048 up).
#include "cuda/gemm/levels.h"
#include "cuda/gemm/packed/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_bf16x6(const GemmProblem& problem, Context& context) {
  packed::gemm_packed<packed::Bf16x6>("bf16x6", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
