// Products of signed and unsigned bytes. Kernels copy both as int8, so that only the instruction that
// multiplies them differs.
#pragma once

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T>
using StorageElement = std::conditional_t<sizeof(T) == 1, int8_t, T>;

// The problem with its bytes as int8.
template <class T>
auto with_storage_elements(const Gemm<T>& g) {
  if constexpr (sizeof(T) > 1) {
    return g;
  } else {
    const auto as_int8 = [](const Operand<T>& o) {
      return Operand<int8_t>{reinterpret_cast<const int8_t*>(o.data), o.row_stride, o.col_stride,
                             o.batch_stride};
    };
    const Result<T>& r = g.result;
    return Gemm<int8_t>{g.m,
                        g.n,
                        g.k,
                        as_int8(g.a),
                        as_int8(g.b),
                        {r.out, r.row_stride, r.batch_stride, r.c, r.c_row_stride, r.c_col_stride,
                         r.c_batch_stride, r.alpha, r.beta, r.wide}};
  }
}

// run_gemm() for the types T and for bytes. launch.operator()<Product>(g, batch) gets a problem whose bytes
// are int8, and the actual types as Product.
template <class... T, class Launch>
void run_with_storage(const GemmProblem& p, Context& context, Launch&& launch) {
  run_gemm<T..., int8_t, uint8_t, MixedBytes<uint8_t, int8_t>, MixedBytes<int8_t, uint8_t>>(
      p, context, [&]<class Product>(const Gemm<Product>& g, int batch) {
        launch.template operator()<Product>(with_storage_elements(g), batch);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
