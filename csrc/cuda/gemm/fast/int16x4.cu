// Level 6: exact int16 products from tensor cores, as four products of byte planes that are summed in 64
// bits. The high planes are signed (parts/planes/scheme.cuh). Results are int64, or int32 modulo 2^32.
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_int16x4(const GemmProblem& given, Context& context) {
  GemmProblem problem = given;
  problem.type = DType::i16i64;  // sums have 64 bits even if the result has 32
  planes::gemm_by_planes<planes::Int16x4>("int16x4", problem, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
