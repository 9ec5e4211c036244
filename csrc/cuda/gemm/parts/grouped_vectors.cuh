// Vectors in the operands of a product or of groups of products (grouped_problem.cuh).
#pragma once

#include "cuda/gemm/parts/grouped_problem.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Whether A and B can be read by vectors. Lines along the dimension that is grouped begin anywhere.
struct OperandVectors {
  bool a, b;
};
template <class T>
OperandVectors operand_vectors(const Gemm<T>& g) {
  return {takes_vectors(g.a), takes_vectors(g.b)};
}
template <class T>
OperandVectors operand_vectors(const GroupedGemm<T>& g) {
  const bool by_k = g.by == GroupedBy::k;
  return {takes_vectors(g.a) && (by_k ? g.a.col_stride : g.a.row_stride) != 1,
          takes_vectors(g.b) && !(by_k && g.b.row_stride == 1)};
}

}  // namespace fastgemm::FASTGEMM_TARGET
