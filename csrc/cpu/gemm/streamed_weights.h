// Products of few rows with packed weights, which are read once, in order, and never become a matrix
// (level6_streamed_weights.cpp). The kinds of lines are those of weight_lines.h.
#pragma once

#include "core/part_scales.h"
#include "cpu/gemm/epilogue.h"
#include "cpu/gemm/few_rows.h"
#include "cpu/gemm/parallel.h"
#include "cpu/gemm/weight_lines.h"
#include "cpu/gemm/weight_pieces.h"

namespace fastgemm::FASTGEMM_ISA {
namespace weights {

inline constexpr int64_t kPanel = 2048;   // codes of a row whose scales are converted at once
inline constexpr int kMostRows = 8;       // of the weight, computed at once
inline constexpr int kMostOfX = 8;        // rows of x, computed at once
inline constexpr int64_t kColumns = 64;   // of the result, stored at once
inline constexpr int64_t kBlockOfX = 64;  // rows of x whose sums are kept at once
inline constexpr int64_t kRest = 512;     // weights converted at once where lines do not fit the groups
inline constexpr int64_t kScales = kPanel / 8 + N;
inline constexpr float kNoZeros[kScales] = {};

// How many rows of the weight are computed at once with M rows of x. Their sums and groups must fit in
// registers.
template <class Kind, int M>
constexpr int kRowsWith = kVectorBytes == 64 ? (M == 1          ? Kind::kMostRows
                                                : M == kMostOfX ? 2
                                                                : 4)
                          : M <= 2           ? 2
                                             : 1;

// Lines of R rows of the weight, and the part of the rows of x that they are multiplied by.
struct Strip {
  const uint8_t* codes[kMostRows];
  Scales scales[kMostRows];
  int64_t lines, lines_of_group, groups_of_line;  // one of the last two is 0
  int64_t first_line;                             // of the panel, counted from the start of its first group
  int64_t ahead;                                  // bytes from these rows of the weight to the next ones
  const void* x;
  int64_t ldx;
  const float* x_scales;  // of the first group, for each row of x, if kScalesParts
  int64_t x_scales_pitch;
};

template <class Kind>
constexpr bool kScalesParts = std::is_same_v<typename Kind::Group, PartGroup>;

template <class Kind, int M, int R, int STEP = 0>
FASTGEMM_INLINE void add_steps(V (&sums)[R][M], const typename Kind::Group (&groups)[R],
                               const typename Kind::Line (&lines)[R], const typename Kind::X* x,
                               int64_t ldx) {
  if constexpr (STEP < Kind::kSteps) {
    typename Kind::Factors factors[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) factors[m] = Kind::factors(x + m * ldx + STEP * Kind::kVector);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const typename Kind::Weights weights = Kind::template weights<STEP>(groups[r], lines[r]);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sums[r][m] = Kind::add(sums[r][m], weights, factors[m]);
    }
    add_steps<Kind, M, R, STEP + 1>(sums, groups, lines, x, ldx);
  }
}

// all_sums[r * M + m] += row r of the weight times row m of x, for the lines of the strip.
template <class Kind, int M, int R>
__attribute__((noinline)) void add_lines(const Strip& s, V* all_sums) {
  V sums[R][M];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sums[r][m] = load<V>(reinterpret_cast<const float*>(all_sums + r * M + m));
  auto* x = static_cast<const typename Kind::X*>(s.x);
  for (int64_t line = 0; line < s.lines;) {
    const int64_t at = s.first_line + line;
    const int64_t group = s.groups_of_line ? at * s.groups_of_line : at / s.lines_of_group;
    const int64_t end =
        s.groups_of_line ? line + 1 : min(s.lines, (group + 1) * s.lines_of_group - s.first_line);
    typename Kind::Group groups[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) groups[r].set(s.scales[r], group);
    V part[R][M] = {};
    for (; line < end; ++line, x += Kind::kCodes) {
      typename Kind::Line lines[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const uint8_t* codes = s.codes[r] + line * Kind::kBytes;
        __builtin_prefetch(codes + s.ahead);
        lines[r] = Kind::read(codes);
      }
      add_steps<Kind, M, R>(kScalesParts<Kind> ? part : sums, groups, lines, x, s.ldx);
    }
    if constexpr (kScalesParts<Kind>) {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const float of_x = s.x_scales[group * s.x_scales_pitch + m];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sums[r][m] += part[r][m] * of_x * groups[r].scale;
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) store(reinterpret_cast<float*>(all_sums + r * M + m), sums[r][m]);
}

// A problem, and how its rows are divided. x is copied in the order in which lines are read: first the
// `in_lines` columns that lines cover, in the order of the kind of line, then the other columns. Zeros fill
// each row, and rows of zeros fill up to a multiple of M.
struct Streamed {
  const GemmProblem& p;
  PackedWeight w;  // without its global scale, which multiplies the sums
  int64_t group_k, in_lines, ldx;
  const void* x;
  Scales scales;         // the fields that all rows share
  BlockScales x_scales;  // of parts of k, if kScalesParts
};

// The scales of `count` parts of row n of the weight, from part `first` on.
FASTGEMM_INLINE void read_scales_of_parts(const BlockScales& s, int64_t part, int64_t n, int64_t first,
                                          int64_t count, float* to) {
  const int64_t column = n / s.block_cols * s.col_stride;
  if (s.type == ScaleType::f32 && s.block_rows == part) {
    const float* from = static_cast<const float*>(s.data) + column + first * s.row_stride;
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * s.row_stride];
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    to[i] = packed::scale_at(s.type, s.data, column + (first + i) * part / s.block_rows * s.row_stride);
}

// `steps`: Kind::kSteps if Kind::kAlongLanes is true, else 0. `vector`: the number of weights in a vector.
template <class T, class X>
__attribute__((noinline)) void copy_x(const GemmProblem& p, int64_t in_lines, int64_t rows, int64_t ldx,
                                      int steps, int vector, X* to) {
  const auto converted = [](T x) {
    if constexpr (std::is_same_v<T, X>)
      return x;
    else
      return widen(x);
  };
  for (int64_t i = 0; i < rows; ++i, to += ldx) {
    const T* x = static_cast<const T*>(p.a.data) + i * p.a.row_stride;
    int64_t k = 0;
    if (i < p.m) {
      for (; steps && k < in_lines; k += steps * vector)
        for (int step = 0; step < steps; ++step)
          for (int lane = 0; lane < vector; ++lane)
            to[k + step * vector + lane] = converted(x[k + lane * steps + step]);
      for (; k < p.k; ++k) to[k] = converted(x[k]);
    }
    for (; k < ldx; ++k) to[k] = X{};
  }
}

// y[i * kColumns + r] = the dot product of row n + r of the weight and row `first_x` + i of x, for r < R and
// i < count. Rows beyond the end of the weight are computed with its last row.
template <class Kind, int M>
void sum_rows(const Streamed& s, int64_t n, int64_t first_x, int64_t count, V* sums, float* y) {
  constexpr int R = kRowsWith<Kind, M>;
  const GemmProblem& p = s.p;
  const bool four = bits_of(s.w.code) == 4;
  const int64_t pitch = four ? ceil_div(p.k, 2) : p.k, groups = ceil_div(p.k, s.group_k);
  const auto* codes = static_cast<const uint8_t*>(p.b.data);
  float scales[R][kScales], zeros[R][kScales];
  using X = typename Kind::X;
  alignas(64) X numbers[R][kRest];
  for (int64_t i = 0; i < round_up(count, M) * R; ++i) store(reinterpret_cast<float*>(sums + i), V{});
  Strip strip;
  strip.ldx = s.ldx, strip.ahead = R * pitch, strip.x_scales_pitch = s.x_scales.col_stride;
  // For the groups from `group` on that begin before `end`.
  const auto read_scales = [&](int64_t row, int64_t group, int64_t end, float* of_row, float* zeros_of_row) {
    const int64_t count = ceil_div(end, s.group_k) - group;
    if constexpr (kScalesParts<Kind>)
      return read_scales_of_parts(p.scales_b, s.x_scales.block_cols, row, group, count, of_row);
    const int64_t first = row / s.w.group_n * groups + group,
                  next = (first + R * groups) * size_of(s.w.scale);
    __builtin_prefetch(static_cast<const char*>(s.w.scales) + next);
    read_numbers(s.w.scale, s.w.scales, first, count, of_row);
    if (s.w.zero != Zero::none) read_zeros(s.w, first, count, zeros_of_row);
  };
  const auto x_scales = [&](int64_t i, int64_t group) {
    return static_cast<const float*>(s.x_scales.data) + group * s.x_scales.col_stride + first_x + i;
  };
  for (int64_t k = 0; k < s.in_lines; k += kPanel) {
    const int64_t end = min(s.in_lines, k + kPanel), group = k / s.group_k;
    for (int r = 0; r < R; ++r) {
      const int64_t row = min(n + r, p.n - 1);
      read_scales(row, group, end, scales[r], zeros[r]);
      strip.codes[r] = codes + row * pitch + (four ? k / 2 : k);
      Scales& of_row = strip.scales[r];
      of_row = s.scales;
      of_row.scales = scales[r];
      of_row.subtracted = s.w.zero == Zero::subtracted ? zeros[r] : kNoZeros;
      of_row.added = s.w.zero == Zero::added ? zeros[r] : kNoZeros;
    }
    strip.lines = (end - k) / Kind::kCodes;
    strip.lines_of_group = s.group_k / Kind::kCodes;
    strip.groups_of_line = strip.lines_of_group ? 0 : Kind::kCodes / s.group_k;
    strip.first_line = (k - group * s.group_k) / Kind::kCodes;
    for (int64_t i = 0; i < count; i += M) {
      strip.x = static_cast<const X*>(s.x) + (first_x + i) * s.ldx + k;
      if constexpr (kScalesParts<Kind>) strip.x_scales = x_scales(i, group);
      add_lines<Kind, M, R>(strip, sums + i * R);
    }
  }
  const int64_t rows = min<int64_t>(R, p.n - n);
  strip.lines_of_group = INT64_MAX, strip.groups_of_line = 0, strip.first_line = 0;
  for (int64_t k = s.in_lines; k < p.k; k += kRest) {
    const int64_t depth = min(kRest, p.k - k);
    dequantize({&s.w, codes, p.k, n, rows, k, depth, kWeightType<X>, numbers, kRest});
    for (int r = 0; r < R; ++r) {
      for (int64_t i = r < rows ? depth : 0; i < round_up(depth, Kind::kVector); ++i) numbers[r][i] = X{};
      strip.codes[r] = reinterpret_cast<const uint8_t*>(numbers[r]);
      if constexpr (kScalesParts<Kind>) {  // the rest fills no line, so it belongs to one part
        read_scales(min(n + r, p.n - 1), k / s.group_k, p.k, scales[r], nullptr);
        strip.scales[r].scales = scales[r];
      }
    }
    strip.lines = ceil_div(depth, Kind::kVector);
    for (int64_t i = 0; i < count; i += M) {
      strip.x = static_cast<const X*>(s.x) + (first_x + i) * s.ldx + k;
      if constexpr (kScalesParts<Kind>) strip.x_scales = x_scales(i, k / s.group_k);
      add_lines<typename Kind::Remainder, M, R>(strip, sums + i * R);
    }
  }
  for (int64_t i = 0; i < count; ++i)
    for (int r = 0; r < rows; ++r)
      y[i * kColumns + r] = sum_of_lanes<float>(sums[(i / M * R + r) * M + i % M]);
}

__attribute__((noinline)) inline void store_block(const GemmProblem& p, const float* y, int64_t i,
                                                  int64_t rows, int64_t j, int64_t columns) {
  const float alpha = float(p.alpha) * (p.packed.global ? *p.packed.global : 1.0f), beta = float(p.beta);
  const auto to = [&]<class Out>() {
    store_tile(y, kColumns, int(rows), int(columns), alpha, beta, output_of<Out>(p, 0).at(i, j));
  };
  if (p.out_type == DType::bf16) return to.template operator()<BFloat16>();
  if (p.out_type == DType::f16) return to.template operator()<Half>();
  to.template operator()<float>();
}

// Calls body(block, follows) for all blocks. Each thread takes the blocks of its own range in order, so that
// it reads memory in order. `follows` says that the thread also computed the block before. A thread that has
// finished its range takes blocks of other threads. `counters` has 64 bytes for each thread.
template <class Body>
FASTGEMM_INLINE void deal_ranges(int64_t blocks, int64_t threads, int64_t task, char* counters, Body&& body) {
  for (int64_t other = 0; other < threads; ++other) {
    const int64_t whose = (task + other) % threads, begin = blocks * whose / threads;
    const int64_t count = blocks * (whose + 1) / threads - begin;
    auto* taken = reinterpret_cast<int64_t*>(counters + whose * 64);
    for (int64_t i; (i = __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED)) < count;)
      if (!body(begin + i, other == 0 && i > 0)) return;
  }
}

template <class Kind, int M>
void stream(const GemmProblem& p, int64_t group_k, bool by_lines, Context& ctx) {
  constexpr int64_t kWorthAFork = 1 << 18;  // codes of a thread
  constexpr int R = kRowsWith<Kind, M>;
  const int64_t in_lines = by_lines ? p.k / Kind::kCodes * Kind::kCodes : 0;
  using X = typename Kind::X;
  const int64_t rows_of_x = round_up(p.m, M), ldx = round_up(p.k, Kind::kVector) + Kind::kVector;
  const int64_t blocks = ceil_div(p.n, kColumns);
  const int64_t threads =
      max<int64_t>(1, min(min<int64_t>(threads_of(ctx), p.n * p.k / kWorthAFork), blocks));
  const int64_t at_once = min(rows_of_x, kBlockOfX);
  const int64_t x_bytes = round_up(rows_of_x * ldx * int64_t{sizeof(X)}, 64),
                sums_bytes = at_once * R * kVectorBytes;
  const int64_t task_bytes = sums_bytes + at_once * kColumns * 4;
  char* memory = static_cast<char*>(ctx.allocate(x_bytes + threads * (task_bytes + 64)));
  X* x = reinterpret_cast<X*>(memory);
  constexpr int steps = Kind::kAlongLanes ? Kind::kSteps : 0;
  if (p.type == DType::bf16) copy_x<BFloat16>(p, in_lines, rows_of_x, ldx, steps, Kind::kVector, x);
  if constexpr (std::is_same_v<X, float>) {
    if (p.type == DType::f32) copy_x<float>(p, in_lines, rows_of_x, ldx, steps, Kind::kVector, x);
    if (p.type == DType::f16) copy_x<Half>(p, in_lines, rows_of_x, ldx, steps, Kind::kVector, x);
  }
  Streamed streamed{p, p.packed, group_k, in_lines, ldx, x, {}, {}};
  if constexpr (kScalesParts<Kind>) streamed.x_scales = cpu::row_scales_of_parts(p, ctx);
  streamed.w.global = nullptr;
  if (bits_of(p.packed.code) == 4) streamed.scales.numbers = numbers_of(p.packed.code);
  for (int lane = 0; lane < N; ++lane)
    streamed.scales.group_of_lane[lane] = uint32_t(Kind::kCodes / N * lane / group_k);
  char* const counters = memory + x_bytes + threads * task_bytes;
  for (int64_t i = 0; i < threads; ++i) *reinterpret_cast<int64_t*>(counters + i * 64) = 0;
  parallel(ctx, threads, [&](int64_t task) {
    V* sums = reinterpret_cast<V*>(memory + x_bytes + task * task_bytes);
    float* y = reinterpret_cast<float*>(memory + x_bytes + task * task_bytes + sums_bytes);
    deal_ranges(blocks, threads, task, counters, [&](int64_t block, bool follows) {
      if (stopped(ctx)) return false;
      const int64_t begin = block * kColumns, columns = min(kColumns, p.n - begin);
      // Rows are prefetched while the rows before them are read.
      const int64_t row_bytes = p.k * bits_of(p.packed.code) / 8;
      const char* codes = static_cast<const char*>(p.b.data) + begin * row_bytes;
      for (int64_t at = 0; !follows && at < R * row_bytes; at += 64) __builtin_prefetch(codes + at);
      for (int64_t m = 0; m < p.m; m += kBlockOfX) {
        const int64_t rows = min(kBlockOfX, p.m - m);
        for (int64_t n = 0; n < columns; n += R) sum_rows<Kind, M>(streamed, begin + n, m, rows, sums, y + n);
        store_block(p, y, m, rows, begin, columns);
      }
      return true;
    });
  });
}

template <class Kind>
void stream_rows(const GemmProblem& p, int64_t group_k, bool by_lines, Context& ctx) {
  if (p.m <= 1) return stream<Kind, 1>(p, group_k, by_lines, ctx);
  if (p.m <= 2) return stream<Kind, 2>(p, group_k, by_lines, ctx);
  if (p.m <= 4) return stream<Kind, 4>(p, group_k, by_lines, ctx);
  stream<Kind, kMostOfX>(p, group_k, by_lines, ctx);
}

// A scale of a whole row is treated as the scale of an endless group.
inline constexpr int64_t kEndless = int64_t{1} << 40;
inline int64_t group_of(const GemmProblem& p) { return p.packed.by_rows(p.k) ? kEndless : p.packed.group_k; }

}  // namespace weights
}  // namespace fastgemm::FASTGEMM_ISA
