// How a narrow product (fast/narrow.cu) is laid out over threads: decided on the host, from its shape.
#pragma once

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kNarrowThreads = 256;
inline constexpr int64_t kMostNarrowPart = 1 << 30;  // of k, for a block

// X: (wide, k), the operand with more rows; Y: (narrow, k). C or its transpose is X times the transpose of Y.
template <class T>
struct NarrowProblem {
  const T *x, *y;
  int64_t x_row, x_k, x_batch, y_row, y_k, y_batch;  // strides
  int64_t wide, narrow, k;
  int batch;
  bool swapped;  // rows of X are columns of C

  NarrowProblem(const Gemm<T>& g, int matrices) : k(g.k), batch(matrices), swapped(g.n > g.m) {
    x = g.a.data, x_row = g.a.row_stride, x_k = g.a.col_stride, x_batch = g.a.batch_stride, wide = g.m;
    y = g.b.data, y_row = g.b.col_stride, y_k = g.b.row_stride, y_batch = g.b.batch_stride, narrow = g.n;
    if (!swapped) return;
    std::swap(x, y), std::swap(x_row, y_row), std::swap(x_k, y_k), std::swap(x_batch, y_batch);
    std::swap(wide, narrow);
  }
};

// What a load of X brings: one element; neighbours along k, and then of Y as well; or neighbouring rows.
enum class Reads : uint8_t { elements, along_k, along_rows };

// What one thread does in a step: kRows rows of X against kNarrow of Y, kUnroll times along k. With one row
// of Y as many loads of X are under way, but along k.
template <class T, int narrow, Reads reads>
struct NarrowThread {
  static constexpr Reads kReads = reads;
  static constexpr bool kVectorRows = reads == Reads::along_rows;
  static constexpr int kMostPerLoad = kVectorRows && narrow > 1 ? 4 : 8;
  static constexpr int kPerLoad = reads == Reads::elements ? 1 : std::min(kPer16Bytes<T>, kMostPerLoad);
  static constexpr int kNarrow = narrow;
  static constexpr int kPerLoadK = reads == Reads::along_k ? kPerLoad : 1;
  // What registers hold: vectors of 16-bit elements widen to twice their size.
  static constexpr int kRowLoads = kVectorRows || narrow == 1 ? 1 : narrow > 4 && sizeof(T) != 4 ? 2 : 4;
  static constexpr int kRows = kVectorRows ? kPerLoad : kRowLoads;
  static constexpr int kUnroll = narrow == 1                ? (reads == Reads::along_k ? 4 : 8)
                                 : reads == Reads::along_k  ? (narrow > 4 && sizeof(T) == 8 ? 2 : 1)
                                 : reads == Reads::elements ? (narrow > 4 ? 2 : 4)
                                                            : (narrow * sizeof(T) > 32 ? 2 : 4);
  static constexpr int kResident = narrow == 1 ? 3 : 2;  // blocks of a multiprocessor
};

struct NarrowPlan {
  int threads_rows = 1;      // of the block's threads, along rows; the others share k
  int splits = 1, part = 0;  // blocks that share k, and what each has of it
  double microseconds = 0;   // as foreseen, but for the launch
};

// Whether neighbouring threads should have neighbours along k, or rows next to each other.
template <class Thread, class T>
bool lines_along_k(const NarrowProblem<T>& p) {
  return Thread::kReads == Reads::along_k || (Thread::kReads == Reads::elements && p.x_k == 1);
}

// The plan that is over first, by a model fitted to an H200: steps of a thread follow each other, each waits
// for memory; blocks share what a multiprocessor can read; a value of a thread is summed by one warp.
template <class Thread, class T>
NarrowPlan narrow_plan(const NarrowProblem<T>& p) {
  constexpr double kStep = 0.55, kBlock = 0.7, kSums = 0.12, kBytes = 40e3, kSecondLaunch = 1.8;
  constexpr int64_t kAll = kNarrowThreads, kLongestChain = 512, kMostRows = 64;
  constexpr int kStepK = Thread::kPerLoadK * Thread::kUnroll;
  const auto power = [](int64_t x) { return int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(x, 1)))); };
  const bool along_k = lines_along_k<Thread>(p);
  const int64_t rows = ceil_div(p.wide, Thread::kRows);
  // Neighbouring threads read whole lines. A thread adds 512 values one after another, or a 256th of k, which
  // bounds the error of float32 sums: around k = 8192 to 6 u for uniform numbers (emulated; 11 u with 1024).
  constexpr int64_t kLine = Thread::kPerLoad > 1 ? 8 : 32;
  const int64_t most_k = std::min(power(ceil_div(p.k, kStepK)), kAll);
  const int64_t least_k = std::min(power(ceil_div(p.k, kLongestChain)), kAll);
  int64_t most = std::min({power(rows), kMostRows, kAll / least_k});
  if (along_k) most = std::min(most, kAll / std::min(most_k, kLine));
  int64_t least = std::min(most, kAll / most_k);
  if (!along_k) least = std::max(least, std::min(most, kLine));
  const int64_t sms = multiprocessors();
  NarrowPlan best;
  for (int64_t threads = least; threads <= most; threads *= 2) {
    const int64_t step = kAll / threads * kStepK, steps = std::max<int64_t>(ceil_div(p.k, step), 1);
    const int64_t tiles = p.batch * ceil_div(rows, threads) * ceil_div(p.narrow, Thread::kNarrow);
    const int64_t room =
        std::min<int64_t>({steps, 64, std::max<int64_t>(Thread::kResident * sms / tiles, 1)});
    const int64_t least_splits = ceil_div(p.k, kMostNarrowPart);
    for (const int64_t wanted : {least_splits, std::max(least_splits, room)}) {
      const int64_t part_steps = ceil_div(steps, std::max<int64_t>(wanted, 1));
      const int64_t splits = ceil_div(steps, part_steps), blocks = tiles * splits;
      const double waves = double(ceil_div(blocks, Thread::kResident * sms));
      const double bytes = double(blocks) * double(threads * Thread::kRows + Thread::kNarrow) *
                           double(std::min(part_steps * step, p.k)) * sizeof(T);
      const double sums = kSums * double(ceil_div(threads, 32) *
                                         ceil_div(Thread::kRows * Thread::kNarrow, kNarrowThreads / 32));
      const double time = std::max(waves * (kBlock + double(part_steps) * kStep + sums),
                                   bytes / (kBytes * double(std::min(blocks, sms)))) +
                          (splits > 1 ? kSecondLaunch : 0);
      if (best.part == 0 || time < best.microseconds)
        best = {int(threads), int(splits), int(part_steps * step), time};
    }
  }
  return best;
}

// One of the sides of a matrix that loads do not go along.
struct OtherSide {
  int64_t extent, stride;
};

// Whether loads of `count` elements along a side meet all of it: whole vectors from aligned places.
template <class T>
bool whole_vectors(const T* data, int64_t extent, int count, std::initializer_list<OtherSide> others) {
  if (extent % count != 0 || !is_aligned(data, count * sizeof(T))) return false;
  return std::ranges::all_of(others, [&](OtherSide o) { return o.extent == 1 || o.stride % count == 0; });
}

template <class T>
bool reads_along_k(const NarrowProblem<T>& p) {
  constexpr int kCount = NarrowThread<T, 1, Reads::along_k>::kPerLoad;
  return p.x_k == 1 && p.y_k == 1 &&
         whole_vectors(p.x, p.k, kCount, {{p.wide, p.x_row}, {p.batch, p.x_batch}}) &&
         whole_vectors(p.y, p.k, kCount, {{p.narrow, p.y_row}, {p.batch, p.y_batch}});
}
template <class T>
bool reads_along_rows(const NarrowProblem<T>& p) {
  constexpr int kCount = NarrowThread<T, 1, Reads::along_rows>::kPerLoad;
  return p.x_row == 1 && whole_vectors(p.x, p.wide, kCount, {{p.k, p.x_k}, {p.batch, p.x_batch}});
}

}  // namespace fastgemm::FASTGEMM_TARGET
