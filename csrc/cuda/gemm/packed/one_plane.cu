// Level 6 for operands that the tensor memory accelerator cannot address (rows that do not begin at multiples
// of 16 bytes) or wgmma does not transpose. A pre-pass packs them (pack.cuh); C may be of any alignment too.
//
// Measured on an H200, cold L2, the pre-pass included, against cuBLAS in the same run: bf16 4095 x 4097 x
// 4093 2.6 (NN) to 3.1 (NT), 410 to 445 TFLOPS; int8 NN at 4096 6.6.
#include "cuda/gemm/levels.h"
#include "cuda/gemm/packed/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_packed(const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (sizeof(T) <= 4 && !std::is_same_v<T, int32_t>)
      packed::gemm_in_pieces<packed::OnePlane<T>>("packed", g, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
