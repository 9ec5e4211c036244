// Products with up to 8 or 16 rows (or, transposed, columns). Memory bandwidth limits them, so B is read
// once, in the order in which it is stored, and never packed.
//
//   rows of B contiguous     y[r] += x[r, kk] * B[kk], 4 rows of B at a time, y in the L1 cache
//   columns of B contiguous  dot products of x with a few columns at a time, all in registers
#pragma once

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

// If columns of B are contiguous and k is long, up to twice as many rows are computed, in two groups. 16 x
// 768 x 768 NT then takes 0.7 of the time of the five loops, which transpose all of B. This does not hold for
// types with an instruction that multiplies several k at once.
inline constexpr int kRowsAtOnce = 8;
template <class T>
bool has_few_rows(const GemmProblem& p) {
  if (p.m <= kRowsAtOnce) return p.b.col_stride == 1 || p.b.row_stride == 1;
  return std::is_same_v<T, Accumulator<T>> && p.m <= 2 * kRowsAtOnce && p.b.row_stride == 1 && p.k > 512;
}

// The type in which x is kept, and how many k a lane multiplies at once. Integers of 8 and 16 bits are
// multiplied as pairs of int16, by a single instruction. Multiplying each number as int32 in a lane of its
// own took 4 to 10 times as long. LEFT is the number of k that are left. If it is less than kGroup, the
// missing ones count as zeros.
template <class T>
struct Factors {
  using Type = Accumulator<T>;
  static constexpr int kGroup = 1;

  static FASTGEMM_INLINE Type of(T x) { return widen(x); }
  static FASTGEMM_INLINE Vector<Type> along_k(const T* b) { return load_widened(b); }
  template <int LEFT>
  static FASTGEMM_INLINE Vector<Type> along_n(const T* b, int64_t) {
    return load_widened(b);
  }
  template <int LEFT>
  static FASTGEMM_INLINE Vector<Type> broadcast_at(const Type* x) {
    return broadcast<Vector<Type>>(*x);
  }
  static FASTGEMM_INLINE Vector<Type> add(Vector<Type> sum, Vector<Type> x, Vector<Type> b) {
    return sum + x * b;
  }
};
template <class T>
  requires kIsNarrowInteger<T>
struct Factors<T> {
  using Type = int16_t;
  using V = Vector<uint32_t>;
  static constexpr int kGroup = 2;

  static FASTGEMM_INLINE Type of(T x) { return x; }
  static FASTGEMM_INLINE V along_k(const T* b) { return Int16Pairs<T>::along_k(b); }
  template <int LEFT>
  static FASTGEMM_INLINE V along_n(const T* b, int64_t sk) {
    if constexpr (LEFT == 1) return load_widened(b) & 0xffffu;
    return Int16Pairs<T>::along_w(b, sk);
  }
  template <int LEFT>
  static FASTGEMM_INLINE V broadcast_at(const Type* x) {
    uint32_t pair = 0;
    std::memcpy(&pair, x, LEFT == 1 ? sizeof *x : sizeof pair);
    return broadcast<V>(pair);
  }
  static FASTGEMM_INLINE V add(V sum, V x, V b) { return add_pair_products(sum, x, b); }
};
template <class T>
using Factor = typename Factors<T>::Type;

template <class T>
FASTGEMM_INLINE Accumulator<T> product_of_one(Factor<T> x, T b) {
  return static_cast<Accumulator<T>>(x) * widen(b);
}

// Adds the lanes of a vector, and halves their number in each step. Adding one lane after another would take
// as long as the products of 16 vectors.
template <class Acc>
FASTGEMM_INLINE Acc sum_of_lanes(Vector<Acc> v) {
  using Lanes = std::make_integer_sequence<int, kLanes<Acc>>;
#pragma GCC unroll 6
  for (int left = kLanes<Acc>; left > 1; left /= 2) v = unzip_even(v, v, Lanes{}) + unzip_odd(v, v, Lanes{});
  return v[0];
}

template <class T>
struct RowsTimesMatrix {
  int64_t rows, n, k;
  const Factor<T>* x;  // (rows, k)
  int64_t ldx;
  const T* b;
  int64_t b_rs, b_cs;
};

// y (ROWS, n) += x (ROWS, DEPTH) * b (DEPTH, n)
// DEPTH is 1 or a multiple of kGroup.
template <class T, int ROWS, int DEPTH, class Acc>
FASTGEMM_INLINE void add_rows(const Factor<T>* x, int64_t ldx, const T* b, int64_t b_rs, int64_t n, Acc* y,
                              int64_t ldy) {
  using V = Vector<Acc>;
  using F = Factors<T>;
  constexpr int N = kLanes<Acc>, G = F::kGroup;
  int64_t j = 0;
  for (; j + N <= n; j += N) {
    V row[DEPTH];
#pragma GCC unroll 4
    for (int d = 0; d < DEPTH; ++d) __builtin_prefetch(b + (d + 2 * DEPTH) * b_rs + j);
#pragma GCC unroll 4
    for (int d = 0; d < DEPTH; d += G) row[d] = F::template along_n<DEPTH>(b + d * b_rs + j, b_rs);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      V sum = load<V>(y + r * ldy + j);
#pragma GCC unroll 4
      for (int d = 0; d < DEPTH; d += G)
        sum = F::add(sum, F::template broadcast_at<DEPTH>(x + r * ldx + d), row[d]);
      store(y + r * ldy + j, sum);
    }
  }
  for (; j < n; ++j)
    for (int r = 0; r < ROWS; ++r)
      for (int d = 0; d < DEPTH; ++d)
        keep_scalar(), y[r * ldy + j] += product_of_one<T>(x[r * ldx + d], b[d * b_rs + j]);
}

// y (ROWS, COLS) += x (ROWS, k) * b (k, COLS), k contiguous in both
template <class T, int ROWS, int COLS, class Acc>
FASTGEMM_INLINE void dot_columns(const Factor<T>* x, int64_t ldx, const T* b, int64_t b_cs, int64_t k, Acc* y,
                                 int64_t ldy) {
  using V = Vector<Acc>;
  using F = Factors<T>;
  constexpr int N = kLanes<Acc>, STEP = N * F::kGroup;
  constexpr int64_t kDepth = 256 * N;  // each lane sums 256 products; then these sums are added
  for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
    const int64_t end = min(k, k0 + kDepth);
    V sum[ROWS][COLS] = {};
    int64_t kk = k0;
    for (; kk + STEP <= end; kk += STEP) {
      V column[COLS];
#pragma GCC unroll 4
      for (int c = 0; c < COLS; ++c) column[c] = F::along_k(b + c * b_cs + kk);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const V xr = load<V>(x + r * ldx + kk);
#pragma GCC unroll 4
        for (int c = 0; c < COLS; ++c) sum[r][c] = F::add(sum[r][c], xr, column[c]);
      }
    }
    for (int r = 0; r < ROWS; ++r) {
      for (int c = 0; c < COLS; ++c) {
        Acc total = sum_of_lanes<Acc>(sum[r][c]);
        for (int64_t t = kk; t < end; ++t)
          keep_scalar(), total += product_of_one<T>(x[r * ldx + t], b[c * b_cs + t]);
        y[r * ldy + c] += total;
      }
    }
  }
}

// y (ROWS, n) += x * B, for n columns from b on.
template <class T, int ROWS>
void multiply_rows(const RowsTimesMatrix<T>& p, const T* b, int64_t n, Accumulator<T>* y, int64_t ldy) {
  using Acc = Accumulator<T>;
  constexpr int64_t kDepth = 512;  // k-blocks are summed separately, as in the engine
  if (p.b_cs == 1) {
    constexpr int64_t kWidth = 4096 / ROWS;  // columns of y: 16 KiB in the L1 cache
    alignas(64) Acc part[ROWS][kWidth];
    for (int64_t j = 0; j < n; j += kWidth) {
      const int64_t width = min(kWidth, n - j);
      for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
        const int64_t end = min(p.k, k0 + kDepth);
        for (auto& row : part)
          for (int64_t i = 0; i < width; ++i) row[i] = 0;
        int64_t kk = k0;
        for (; kk + 4 <= end; kk += 4)
          add_rows<T, ROWS, 4>(p.x + kk, p.ldx, b + kk * p.b_rs + j, p.b_rs, width, part[0], kWidth);
        for (; kk < end; ++kk)
          add_rows<T, ROWS, 1>(p.x + kk, p.ldx, b + kk * p.b_rs + j, p.b_rs, width, part[0], kWidth);
        for (int r = 0; r < ROWS; ++r)
          for (int64_t i = 0; i < width; ++i) y[r * ldy + j + i] += part[r][i];
      }
    }
  } else {
    constexpr int registers = kVectorBytes == 64 ? 24 : 8;
    constexpr int COLS = registers / ROWS < 1 ? 1 : registers / ROWS > 4 ? 4 : registers / ROWS;
    int64_t j = 0;
    for (; j + COLS <= n; j += COLS)
      dot_columns<T, ROWS, COLS>(p.x, p.ldx, b + j * p.b_cs, p.b_cs, p.k, y + j, ldy);
    for (; j < n; ++j) dot_columns<T, ROWS, 1>(p.x, p.ldx, b + j * p.b_cs, p.b_cs, p.k, y + j, ldy);
  }
}

// The same for more rows. It takes so few columns at a time that they are still in the L1 cache for the
// second group of rows.
template <class T, int... I>
void multiply_rows(const RowsTimesMatrix<T>& p, const T* b, int64_t n, Accumulator<T>* y, int64_t ldy,
                   std::integer_sequence<int, I...>) {
  using Kernel = void (*)(const RowsTimesMatrix<T>&, const T*, int64_t, Accumulator<T>*, int64_t);
  static constexpr Kernel kernels[] = {multiply_rows<T, I + 1>...};
  const int64_t width = p.rows <= kRowsAtOnce ? n : 12;
  for (int64_t j = 0; j < n; j += width) {
    RowsTimesMatrix<T> group = p;
    for (int64_t r = 0; r < p.rows; r += kRowsAtOnce) {
      group.rows = min<int64_t>(kRowsAtOnce, p.rows - r);
      group.x = p.x + r * p.ldx;
      kernels[group.rows - 1](group, b + j * p.b_cs, min(width, n - j), y + r * ldy + j, ldy);
    }
  }
}

// The same as GemmProblem::transposed(). That function must not be called here, because the instruction sets
// would share it.
FASTGEMM_INLINE GemmProblem transposed(const GemmProblem& p) {
  GemmProblem t = p;
  t.m = p.n, t.n = p.m;
  t.a = {p.b.data, p.b.col_stride, p.b.row_stride, p.b.batch_stride};
  t.b = {p.a.data, p.a.col_stride, p.a.row_stride, p.a.batch_stride};
  t.c = {p.c.data, p.c.col_stride, p.c.row_stride, p.c.batch_stride};
  t.out = {p.out.data, p.out.col_stride, p.out.row_stride, p.out.batch_stride};
  t.epilogue.bias_row_stride = p.epilogue.bias_col_stride;
  t.epilogue.bias_col_stride = p.epilogue.bias_row_stride;
  t.scales.rows = p.scales.columns, t.scales.columns = p.scales.rows;
  return t;
}

// sums = activation(scales * alpha * sums + bias) in one row of the result, or, if `turned`, in one column.
// The scale of the result's row comes first.
template <class Out, class Acc>
void finish_sums(const GemmProblem& p, Acc* sums, int64_t row, Range columns, Acc alpha, bool turned) {
  using V = Vector<Acc>;
  constexpr int N = kLanes<Acc>;
  const Epilogue& e = p.epilogue;
  const LineScales &by_row = p.scales.rows, &by_column = p.scales.columns;
  const Acc line = by_row.data ? Acc(by_row.data[row * by_row.stride]) : Acc(1);
  for (int64_t j = columns.begin; j < columns.end; ++j) {
    sums[j] *= alpha;
    if (p.scales.asked) {
      const Acc own = by_column.data ? Acc(by_column.data[j * by_column.stride]) : Acc(1);
      sums[j] = turned ? sums[j] * own * line : sums[j] * line * own;
    }
    if (e.bias)
      sums[j] += widen(static_cast<const Out*>(e.bias)[row * e.bias_row_stride + j * e.bias_col_stride]);
  }
  int64_t j = columns.begin;
  for (; j + N <= columns.end; j += N) store(sums + j, activate_vector(e.activation, load<V>(sums + j)));
  Acc* const rest = sums + j;
  activate_rest<Acc>(
      e.activation, 1, columns.end - j, [&](int64_t, int64_t i) { return rest[i]; },
      [&](int64_t, int64_t i, Acc x) { rest[i] = x; });
}

// A thread must have at least this many bytes of B to be worth a fork. Reading them takes several times as
// long as a fork. With a single row, reading takes longer than the number of multiply-adds suggests.
inline constexpr int64_t kStreamWorthAFork = int64_t{512} << 10;

// Computes the problem and returns true if it has few rows, or few columns (it is then transposed), and B can
// be read in order.
template <class T, class Out>
bool run_few_rows(const GemmProblem& problem, Context& ctx, int threads) {
  using Acc = Accumulator<T>;
  GemmProblem p = problem;
  const bool turned = !has_few_rows<T>(p);
  if (turned) p = transposed(p);
  if (threads == 1) {
    const int64_t worth = min(p.n * p.k * int64_t{sizeof(T)} / kStreamWorthAFork, p.n / 32);
    threads = static_cast<int>(max<int64_t>(1, min<int64_t>(threads_of(ctx), worth)));
  }
  if (!has_few_rows<T>(p) || p.batch != 1 || p.n < 32 * threads) return false;

  const T* a = static_cast<const T*>(p.a.data);
  const bool widened = std::is_same_v<T, Acc> && p.a.col_stride == 1;
  const int64_t ldy = round_up(p.n, 16), y_bytes = p.m * ldy * int64_t{sizeof(Acc)};
  const int64_t copy_bytes = widened ? 0 : p.m * p.k * int64_t{sizeof(Factor<T>)};
  char* scratch = static_cast<char*>(ctx.allocate(y_bytes + copy_bytes));
  Acc* y = reinterpret_cast<Acc*>(scratch);
  Factor<T>* copy = reinterpret_cast<Factor<T>*>(scratch + y_bytes);
  if (!widened) {
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t kk = 0; kk < p.k; ++kk)
        copy[i * p.k + kk] = Factors<T>::of(a[i * p.a.row_stride + kk * p.a.col_stride]);
  }
  const Factor<T>* x = widened ? reinterpret_cast<const Factor<T>*>(a) : copy;
  const int64_t ldx = widened ? p.a.row_stride : p.k;

  const RowsTimesMatrix<T> q{p.m,           p.n, p.k, x, ldx, static_cast<const T*>(p.b.data), p.b.row_stride,
                             p.b.col_stride};
  const Acc alpha = scalar_of<Acc>(p.alpha), beta = scalar_of<Acc>(p.beta);
  const Out* c = static_cast<const Out*>(p.c.data);
  Out* out = static_cast<Out*>(p.out.data);
  const bool finishes = p.epilogue.asked() || p.scales.asked;
  parallel(ctx, threads, [&](int64_t task) {
    const Range mine = part(p.n, 16, threads, task);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = mine.begin; j < mine.end; ++j) y[i * ldy + j] = 0;
    multiply_rows(q, q.b + mine.begin * q.b_cs, mine.size(), y + mine.begin, ldy,
                  std::make_integer_sequence<int, kRowsAtOnce>{});
    for (int64_t i = 0; i < p.m; ++i) {
      if constexpr (!std::is_integral_v<Acc>) {
        if (finishes) finish_sums<Out>(p, y + i * ldy, i, mine, alpha, turned);
      }
      for (int64_t j = mine.begin; j < mine.end; ++j) {
        Acc v = finishes ? y[i * ldy + j] : alpha * y[i * ldy + j];
        if (p.beta != 0) v += beta * widen(c[i * p.c.row_stride + j * p.c.col_stride]);
        out[i * p.out.row_stride + j * p.out.col_stride] = round_to<Out>(v);
      }
    }
  });
  return true;
}

}  // namespace fastgemm::FASTGEMM_ISA
