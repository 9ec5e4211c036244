// Level 1: three loops.
//
// It follows the definition: out[i, j] is the dot product of row i of A and column j of B. Every dot product
// reads the column of B again. At 1024 x 1024, nothing of the column is left in the L1 cache when the next
// row of A needs it.
#include "core/packed_weight.h"
#include "cpu/gemm/epilogue.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/parallel.h"

namespace fastgemm::scalar {
namespace {

// The rounding error of a sum grows with the number of its terms. So 256 terms at a time are summed, and then
// these sums are added. The error is then as small as that of the blocked kernels.
constexpr int64_t kSummands = 256;

// b(kk) is element kk of the column of B.
template <class T, class Column>
Accumulator<T> dot(const T* a, int64_t a_stride, int64_t k, Column&& b) {
  Accumulator<T> total = 0;
  for (int64_t k0 = 0; k0 < k; k0 += kSummands) {
    Accumulator<T> sum = 0;
    for (int64_t kk = k0; kk < min(k, k0 + kSummands); ++kk) sum += widen(a[kk * a_stride]) * b(kk);
    total += sum;
  }
  return total;
}

// Row i of A times column j of B. A packed weight is decoded where it is read: its code, scale and zero.
template <class T>
Accumulator<T> element(const GemmProblem& p, const T* a, const T* b, int64_t j) {
  if constexpr (std::is_same_v<Accumulator<T>, float>) {
    if (p.packed.is_given())
      return dot(a, p.a.col_stride, p.k,
                 [&](int64_t kk) { return packed::weight_at(p.packed, b, p.k, j, kk); });
  }
  b += j * p.b.col_stride;
  return dot(a, p.a.col_stride, p.k, [&](int64_t kk) { return widen(b[kk * p.b.row_stride]); });
}

// Returns false if the call must stop.
template <class T, class Out>
bool naive(const GemmProblem& p, int64_t batch, Context& ctx, Pace& pace) {
  using Acc = Accumulator<T>;
  const T* a = static_cast<const T*>(p.a.data) + batch * p.a.batch_stride;
  const T* b = static_cast<const T*>(p.b.data) + batch * p.b.batch_stride;
  const Out* c = static_cast<const Out*>(p.c.data);
  Out* out = static_cast<Out*>(p.out.data) + batch * p.out.batch_stride;
  [[maybe_unused]] const Epilogue& e = p.epilogue;
  const Acc alpha = scalar_of<Acc>(p.alpha), beta = scalar_of<Acc>(p.beta);
  for (int64_t i = 0; i < p.m; ++i) {
    if (pace.due(p.n * p.k) && stopped(ctx)) return false;
    for (int64_t j = 0; j < p.n; ++j) {
      Acc x = alpha * element(p, a + i * p.a.row_stride, b, j);
      if constexpr (!std::is_integral_v<Acc>) {
        if (e.bias)
          x += widen(static_cast<const Out*>(e.bias)[i * e.bias_row_stride + j * e.bias_col_stride]);
        if (e.activation != Activation::none) x = activate_one(e.activation, x);
      }
      if (p.beta != 0)
        x += beta * widen(c[batch * p.c.batch_stride + i * p.c.row_stride + j * p.c.col_stride]);
      out[i * p.out.row_stride + j] = round_to<Out>(x);
    }
  }
  return true;
}

}  // namespace
}  // namespace fastgemm::scalar

namespace fastgemm {

void gemm_naive(const GemmProblem& p, Context& ctx) {
  Pace pace;
  scalar::with_types(p, [&]<class T, class Out>() {
    for (int64_t batch = 0; batch < p.batch; ++batch)
      if (!scalar::naive<T, Out>(p, batch, ctx, pace)) return;
  });
}

}  // namespace fastgemm
