// Level 6, float32 from three products of fp16 planes, rows scaled by powers of two: 22 of 24 bits, at or
// below cuBLAS SGEMM's error from k = 64 on (scheme.cuh).
//
// Measured on an H200, cold L2, the pre-pass included, against cuBLAS SGEMM in the same run: 2.2 at
// 1024, 3.05 at 2048, 4.0 at 4096, 4.5 at 8192 and at 16384 (72, 152, 204, 220 and 222 TFLOPS).
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_fp16x3(const GemmProblem& problem, Context& context) {
  planes::gemm_by_planes<planes::Fp16x3>("fp16x3", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
