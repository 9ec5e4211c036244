// Level 6, float32 from three products of bf16 planes: 16 of 24 bits, in float32's range (scheme.cuh).
//
// Measured on an H200, cold L2, the pre-pass included, against cuBLAS SGEMM in the same run: 2.4 at 1024, 3.3
// at 2048, 4.2 at 4096 (79, 165 and 215 TFLOPS).
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_bf16x3(const GemmProblem& problem, Context& context) {
  planes::gemm_by_planes<planes::Bf16x3>("bf16x3", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
