// Batches of products that are too small for a register tile, such as (3, 3) by (3, 1). Each element is
// computed as a dot product. A tile would take 40 ns before its first multiplication, or 180 ns with packed
// panels.
#pragma once

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

// Computes products of a batch. DEPTH is k, or 0 if k is more than 4.
template <class T, class Out, int DEPTH>
void multiply_tiny(const GemmProblem& p, Range batch) {
  const int64_t depth = DEPTH ? DEPTH : p.k;
  const int64_t a_rs = p.a.row_stride, a_cs = p.a.col_stride, b_rs = p.b.row_stride, b_cs = p.b.col_stride;
  for (int64_t index = batch.begin; index < batch.end; ++index) {
    const T* a = static_cast<const T*>(p.a.data) + index * p.a.batch_stride;
    const T* const b = static_cast<const T*>(p.b.data) + index * p.b.batch_stride;
    Out* out = static_cast<Out*>(p.out.data) + index * p.out.batch_stride;
    for (int64_t i = 0; i < p.m; ++i, a += a_rs, out += p.out.row_stride) {
      for (int64_t j = 0; j < p.n; ++j) {
        keep_scalar();
        Accumulator<T> sum = widen(a[0]) * widen(b[j * b_cs]);
        for (int64_t k = 1; k < depth; ++k) sum += widen(a[k * a_cs]) * widen(b[k * b_rs + j * b_cs]);
        out[j] = round_to<Out>(sum);
      }
    }
  }
}

// Computes the problem and returns true if it is such a batch.
template <class T, class Out>
bool run_tiny(const GemmProblem& p, Context& ctx) {
  constexpr int64_t kMost = 128;  // multiply-adds
  const bool plain = p.alpha == 1 && p.beta == 0 && !p.epilogue.asked();
  if (kIsComplex<T> || !plain || p.batch == 1 || p.invariant || p.m * p.n * p.k > kMost) return false;
  if constexpr (!kIsComplex<T>) {
    using Kernel = void (*)(const GemmProblem&, Range);
    static constexpr Kernel kernels[] = {multiply_tiny<T, Out, 0>, multiply_tiny<T, Out, 1>,
                                         multiply_tiny<T, Out, 2>, multiply_tiny<T, Out, 3>,
                                         multiply_tiny<T, Out, 4>};
    constexpr int64_t kTask = 1 << 15;  // multiply-adds of a task
    const int64_t step = ceil_div(kTask, p.m * p.n * p.k);
    parallel(ctx, ceil_div(p.batch, step), [&](int64_t task) {
      kernels[p.k <= 4 ? p.k : 0](p, {task * step, min(p.batch, (task + 1) * step)});
    });
  }
  return true;
}

}  // namespace fastgemm::FASTGEMM_ISA
