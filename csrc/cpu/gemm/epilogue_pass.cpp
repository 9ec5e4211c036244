// The epilogue as a separate pass. The rows are divided among threads; each row is read and written once.
#include "core/epilogue_pass.h"

#include "cpu/gemm/activation.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/parallel.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

// The addresses of a row; null without a bias or c.
template <class Sum, class Out>
struct Row {
  const Sum* sums;
  const Out *bias, *c;
  Out* out;
  Accumulator<Sum> scale;

  FASTGEMM_INLINE void set(const EpiloguePass& f, int64_t index) {
    const int64_t batch = index / f.m, row = index % f.m;
    const auto of = [&](const auto& m) { return batch * m.batch_stride + row * m.row_stride; };
    sums = static_cast<const Sum*>(f.sums.data) + of(f.sums);
    bias = static_cast<const Out*>(f.epilogue.bias);
    if (bias) bias += row * f.epilogue.bias_row_stride;
    c = static_cast<const Out*>(f.c.data) + (f.beta != 0 ? of(f.c) : 0);
    out = static_cast<Out*>(f.out.data) + of(f.out);
    const LineScales& scales = f.scales.rows;
    scale = scales.data ? Accumulator<Sum>(scales.data[row * scales.stride]) : Accumulator<Sum>(1);
  }
};

// A vector of a row, if columns are contiguous.
template <class Sum, class Out>
struct VectorPass {
  using Acc = Accumulator<Sum>;
  using V = Vector<Acc>;
  const EpiloguePass& f;
  const LineScales& by_column = f.scales.columns;
  Acc beta = static_cast<Acc>(f.beta);
  Acc of_all = by_column.data && by_column.stride == 0 ? Acc(by_column.data[0]) : Acc(1);

  template <class Part>
  FASTGEMM_INLINE V before(Part vector, const Row<Sum, Out>& row, int64_t j) const {
    V x = vector.load(row.sums + j);
    if (f.scales.asked) {
      x *= row.scale;
      if constexpr (std::is_same_v<Acc, float>)
        x *= by_column.stride == 1 ? vector.load(by_column.data + j) : broadcast<V>(of_all);
    }
    if (row.bias) x += vector.load(row.bias + j);
    return x;
  }
  template <class Part>
  FASTGEMM_INLINE void after(Part vector, const Row<Sum, Out>& row, int64_t j, V x) const {
    x = activate_vector(f.epilogue.activation, x);
    if (f.beta != 0) x += beta * vector.load(row.c + j);
    vector.store(row.out + j, x);
  }
};

// Up to kLanes rows; returns the number of columns.
template <class Sum, class Out>
int64_t apply_to_vectors(const EpiloguePass& f, const Row<Sum, Out>* rows, int64_t count) {
  using Pass = VectorPass<Sum, Out>;
  constexpr int64_t N = kLanes<typename Pass::Acc>;
  const Pass pass{f};
  const int64_t whole = f.n / N * N, rest = f.n - whole;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t j = 0; j < whole; j += N)
      pass.after(WholeVector{}, rows[r], j, pass.before(WholeVector{}, rows[r], j));
  if (!worth_a_vector<typename Pass::Acc>(rest)) return whole;
  // All loads come first: in place, the load of a row would wait for the store at the end of the row before
  // it, which took six times as long.
  const PartOfVector part{int(rest)};
  typename Pass::V ends[N];
  for (int64_t r = 0; r < count; ++r) ends[r] = pass.before(part, rows[r], whole);
  for (int64_t r = 0; r < count; ++r) pass.after(part, rows[r], whole, ends[r]);
  return f.n;
}

// Rows [begin, end) of the batch.
template <class Sum, class Out>
void apply_to_part(const EpiloguePass& f, int64_t begin, int64_t end) {
  using Acc = Accumulator<Sum>;
  const Epilogue& e = f.epilogue;
  const Acc beta = static_cast<Acc>(f.beta);
  const LineScales& by_column = f.scales.columns;
  const bool scaled = f.scales.asked;
  const bool vectors = f.sums.col_stride == 1 && f.out.col_stride == 1 &&
                       (!e.bias || e.bias_col_stride == 1) && (f.beta == 0 || f.c.col_stride == 1) &&
                       (by_column.stride == 1 || by_column.stride == 0);
  // As many rows at a time as their ends fill a vector.
  constexpr int64_t N = kLanes<Acc>;
  for (int64_t i = begin; i < end; i += N) {
    const int64_t rows = min(N, end - i);
    Row<Sum, Out> at[N];
    for (int64_t r = 0; r < rows; ++r) at[r].set(f, i + r);
    const int64_t done = vectors ? apply_to_vectors(f, at, rows) : 0;
    const auto before = [&](int64_t r, int64_t j) {
      const Row<Sum, Out>& row = at[r];
      j += done;
      Acc x = widen(row.sums[j * f.sums.col_stride]);
      if (scaled) x *= row.scale, x *= by_column.data ? Acc(by_column.data[j * by_column.stride]) : Acc(1);
      if (e.bias) x += widen(row.bias[j * e.bias_col_stride]);
      return x;
    };
    activate_rest<Acc>(e.activation, rows, f.n - done, before, [&](int64_t r, int64_t j, Acc x) {
      const Row<Sum, Out>& row = at[r];
      j += done;
      if (f.beta != 0) x += beta * widen(row.c[j * f.c.col_stride]);
      row.out[j * f.out.col_stride] = round_to<Out>(x);
    });
  }
}

template <class Sum, class Out>
void apply_to_rows(const EpiloguePass& f, Context& ctx) {
  constexpr int64_t kWorthAFork = 1 << 14;  // elements
  const int64_t rows = f.batch * f.m;
  const int64_t tasks = rows * f.n < kWorthAFork ? 1 : min<int64_t>(threads_of(ctx), rows);
  parallel(ctx, tasks,
           [&](int64_t task) { apply_to_part<Sum, Out>(f, rows * task / tasks, rows * (task + 1) / tasks); });
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
