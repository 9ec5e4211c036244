// The epilogue: out = alpha * tile + beta * c, rounded once to the type of out.
#pragma once

#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {

template <class Out>
struct OutputBlock {
  const Out* c;
  int64_t c_rs, c_cs;
  Out* out;  // rows contiguous
  int64_t ld;

  OutputBlock at(int64_t i, int64_t j) const {
    return {c ? c + i * c_rs + j * c_cs : nullptr, c_rs, c_cs, out + i * ld + j, ld};
  }
};

// c is null where beta is 0.
template <class Out>
OutputBlock<Out> output_of(const GemmProblem& p, int64_t batch) {
  const Out* c = p.beta != 0 ? static_cast<const Out*>(p.c.data) + batch * p.c.batch_stride : nullptr;
  return {c, p.c.row_stride, p.c.col_stride, static_cast<Out*>(p.out.data) + batch * p.out.batch_stride,
          p.out.row_stride};
}

template <class Acc, class Out>
void store_tile(const Acc* tile, int64_t tile_ld, int rows, int cols, Acc alpha, Acc beta,
                OutputBlock<Out> o) {
  using V = Vector<Acc>;
  constexpr int N = kLanes<Acc>;
  const bool vector_c = beta == Acc{0} || o.c_cs == 1;
  for (int i = 0; i < rows; ++i) {
    const Acc* t = tile + i * tile_ld;
    Out* out = o.out + i * o.ld;
    int j = 0;
    if (vector_c) {
      for (; j + N <= cols; j += N) {
        V v = load<V>(t + j) * alpha;
        if (beta != Acc{0}) v += load_widened(o.c + i * o.c_rs + j) * beta;
        store_narrowed<Out, Acc>(out + j, v);
      }
    }
    for (; j < cols; ++j) {
      Acc x = t[j] * alpha;
      if (beta != Acc{0}) x += widen(o.c[i * o.c_rs + j * o.c_cs]) * beta;
      out[j] = round_to<Out>(x);
    }
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
