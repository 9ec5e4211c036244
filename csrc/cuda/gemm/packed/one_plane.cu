// Level 6 for operands that the tensor memory accelerator cannot address (rows that do not begin at multiples
// of 16 bytes) or wgmma does not transpose: packed by the pre-pass, then as any other scheme.
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
