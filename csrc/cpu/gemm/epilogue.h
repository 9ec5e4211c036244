// The epilogue: out = alpha * tile + beta * c, rounded once to the type of out.
#pragma once

#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {

template <class Out>
struct OutputBlock {
  const Out* c;  // not read when beta is 0
  int64_t c_rs, c_cs;
  Out* out;  // rows contiguous
  int64_t ld;
};

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
      out[j] = narrow<Out>(x);
    }
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
