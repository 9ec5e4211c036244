// The epilogue as a separate pass. The rows are divided among threads; each row is read and written once.
#include "core/epilogue_pass.h"

#include "cpu/gemm/activation.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/parallel.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <class Sum, class Out>
void apply_to_row(const EpiloguePass& f, int64_t batch, int64_t row) {
  using Acc = Accumulator<Sum>;
  using V = Vector<Acc>;
  constexpr int N = kLanes<Acc>;
  const Epilogue& e = f.epilogue;
  const Sum* sums =
      static_cast<const Sum*>(f.sums.data) + batch * f.sums.batch_stride + row * f.sums.row_stride;
  const Out* bias = static_cast<const Out*>(e.bias) + (e.bias ? row * e.bias_row_stride : 0);
  const Out* c =
      static_cast<const Out*>(f.c.data) + (f.beta != 0 ? batch * f.c.batch_stride + row * f.c.row_stride : 0);
  Out* out = static_cast<Out*>(f.out.data) + batch * f.out.batch_stride + row * f.out.row_stride;
  const Acc beta = static_cast<Acc>(f.beta);
  const bool whole = f.sums.col_stride == 1 && f.out.col_stride == 1 && (!e.bias || e.bias_col_stride == 1) &&
                     (f.beta == 0 || f.c.col_stride == 1);
  const LineScales &by_row = f.scales.rows, &by_column = f.scales.columns;
  const bool scaled = f.scales.asked, contiguous = by_column.stride == 1;
  const Acc of_row = by_row.data ? Acc(by_row.data[row * by_row.stride]) : Acc(1);
  const Acc of_all = by_column.data && !contiguous ? Acc(by_column.data[0]) : Acc(1);
  int64_t j = 0;
  if (whole && (contiguous || by_column.stride == 0)) {
    for (; j + N <= f.n; j += N) {
      V x = load_widened(sums + j);
      if (scaled) {
        x *= of_row;
        if constexpr (std::is_same_v<Acc, float>)
          x *= contiguous ? load<V>(by_column.data + j) : broadcast<V>(of_all);
      }
      if (e.bias) x += load_widened(bias + j);
      x = activate_vector(e.activation, x);
      if (f.beta != 0) x += beta * load_widened(c + j);
      store_narrowed<Out, Acc>(out + j, x);
    }
  }
  for (; j < f.n; ++j) {
    Acc x = widen(sums[j * f.sums.col_stride]);
    if (scaled) x *= of_row, x *= by_column.data ? Acc(by_column.data[j * by_column.stride]) : Acc(1);
    if (e.bias) x += widen(bias[j * e.bias_col_stride]);
    x = activate_one(e.activation, x);
    if (f.beta != 0) x += beta * widen(c[j * f.c.col_stride]);
    out[j * f.out.col_stride] = round_to<Out>(x);
  }
}

template <class Sum, class Out>
void apply_to_rows(const EpiloguePass& f, Context& ctx) {
  constexpr int64_t kWorthAFork = 1 << 14;  // elements
  const int64_t rows = f.batch * f.m;
  const int64_t tasks = rows * f.n < kWorthAFork ? 1 : min<int64_t>(threads_of(ctx), rows);
  parallel(ctx, tasks, [&](int64_t task) {
    for (int64_t i = rows * task / tasks; i < rows * (task + 1) / tasks; ++i)
      apply_to_row<Sum, Out>(f, i / f.m, i % f.m);
  });
}

}  // namespace

void epilogue_pass(const EpiloguePass& f, Context& ctx) {
  if (f.sum_type == DType::f64) return apply_to_rows<double, double>(f, ctx);
  const bool summed_wide = f.sum_type == DType::f32;
  switch (f.out_type) {
    case DType::f16:
      return summed_wide ? apply_to_rows<float, Half>(f, ctx) : apply_to_rows<Half, Half>(f, ctx);
    case DType::bf16:
      return summed_wide ? apply_to_rows<float, BFloat16>(f, ctx) : apply_to_rows<BFloat16, BFloat16>(f, ctx);
    default:
      return apply_to_rows<float, float>(f, ctx);
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
