// How a narrow product (fast/narrow.cu) is laid out over threads: the host decides it from the shape.
#pragma once

#include <algorithm>
#include <bit>

#include "cuda/gemm/parts/sides.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kNarrowThreads = 256;
inline constexpr int64_t kMostNarrowPart = 1 << 30;  // values of k for a block

// X is the wide side, (wide.side, k), and Y the narrow one, (narrow.side, k).
template <class T>
struct NarrowProblem : Sides<T> {
  int batch;

  NarrowProblem(const Gemm<T>& g, int matrices) : Sides<T>(g, matrices), batch(matrices) {}
};

// What a load of X brings: one element; neighbours along k, and then of Y as well; or neighbouring rows.
enum class Reads : uint8_t { elements, along_k, along_rows };

// What one thread does in a step: it multiplies kRows rows of X by kNarrow of Y, kUnroll times along k. With
// one row of Y it has as many loads of X in flight, but along k.
template <class T, int narrow, Reads reads>
struct NarrowThread {
  static constexpr Reads kReads = reads;
  static constexpr bool kVectorRows = reads == Reads::along_rows;
  static constexpr int kMostPerLoad = kVectorRows && narrow > 1 ? 4 : 8;
  static constexpr int kPerLoad = reads == Reads::elements ? 1 : std::min(kPer16Bytes<T>, kMostPerLoad);
  static constexpr int kNarrow = narrow;
  static constexpr int kPerLoadK = reads == Reads::along_k ? kPerLoad : 1;
  // As much as registers hold: vectors of 16-bit elements widen to twice their size.
  static constexpr int kRowLoads = kVectorRows || narrow == 1 ? 1 : narrow > 4 && sizeof(T) != 4 ? 2 : 4;
  static constexpr int kRows = kVectorRows ? kPerLoad : kRowLoads;
  static constexpr int kUnroll = narrow == 1                ? (reads == Reads::along_k ? 4 : 8)
                                 : reads == Reads::along_k  ? (narrow > 4 && sizeof(T) == 8 ? 2 : 1)
                                 : reads == Reads::elements ? (narrow > 4 ? 2 : 4)
                                                            : (narrow * sizeof(T) > 32 ? 2 : 4);
  static constexpr int kResident = narrow == 1 ? 3 : 2;  // blocks of a multiprocessor
};

struct NarrowPlan {
  int threads_rows = 1;      // threads of a block along rows; the others share k
  int splits = 1, part = 0;  // blocks that share k, and how many values of it each has
  double microseconds = 0;   // predicted, without the launch
};

// Whether neighbouring threads should have neighbours along k, or rows next to each other.
template <class Thread, class T>
bool lines_along_k(const NarrowProblem<T>& p) {
  return Thread::kReads == Reads::along_k || (Thread::kReads == Reads::elements && p.wide.k_stride == 1);
}

// Returns the plan that is predicted to end first, by a model fitted to an H200: a thread's steps follow each
// other and each waits for memory, blocks share the bandwidth of a multiprocessor, and one warp sums each
// value of the threads that share rows.
template <class Thread, class T>
NarrowPlan narrow_plan(const NarrowProblem<T>& p) {
  constexpr double kStep = 0.55, kBlock = 0.7, kSums = 0.12, kBytes = 40e3, kSecondLaunch = 1.8;
  constexpr int64_t kAll = kNarrowThreads, kLongestChain = 512, kMostRows = 64;
  constexpr int kStepK = Thread::kPerLoadK * Thread::kUnroll;
  const auto power = [](int64_t x) { return int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(x, 1)))); };
  const bool along_k = lines_along_k<Thread>(p);
  const int64_t rows = ceil_div(p.wide.side, Thread::kRows), k = p.wide.k;
  // Neighbouring threads read whole lines. A thread adds 512 values one after another, or a 256th of k, which
  // bounds the error of float32 sums: around k = 8192 to 6 u for uniform numbers (emulated; 11 u with 1024).
  constexpr int64_t kLine = Thread::kPerLoad > 1 ? 8 : 32;
  const int64_t most_k = std::min(power(ceil_div(k, kStepK)), kAll);
  const int64_t least_k = std::min(power(ceil_div(k, kLongestChain)), kAll);
  int64_t most = std::min({power(rows), kMostRows, kAll / least_k});
  if (along_k) most = std::min(most, kAll / std::min(most_k, kLine));
  int64_t least = std::min(most, kAll / most_k);
  if (!along_k) least = std::max(least, std::min(most, kLine));
  const int64_t sms = multiprocessors();
  NarrowPlan best;
  for (int64_t threads = least; threads <= most; threads *= 2) {
    const int64_t step = kAll / threads * kStepK, steps = std::max<int64_t>(ceil_div(k, step), 1);
    const int64_t tiles = p.batch * ceil_div(rows, threads) * ceil_div(p.narrow.side, Thread::kNarrow);
    const int64_t room =
        std::min<int64_t>({steps, 64, std::max<int64_t>(Thread::kResident * sms / tiles, 1)});
    const int64_t least_splits = ceil_div(k, kMostNarrowPart);
    for (const int64_t wanted : {least_splits, std::max(least_splits, room)}) {
      const int64_t part_steps = ceil_div(steps, std::max<int64_t>(wanted, 1));
      const int64_t splits = ceil_div(steps, part_steps), blocks = tiles * splits;
      const double waves = double(ceil_div(blocks, Thread::kResident * sms));
      const double bytes = double(blocks) * double(threads * Thread::kRows + Thread::kNarrow) *
                           double(std::min(part_steps * step, k)) * sizeof(T);
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

template <class T>
bool reads_along_k(const NarrowProblem<T>& p) {
  constexpr int kCount = NarrowThread<T, 1, Reads::along_k>::kPerLoad;
  return takes_loads_of(kCount, true, p.wide, p.batch) && takes_loads_of(kCount, true, p.narrow, p.batch);
}
template <class T>
bool reads_along_rows(const NarrowProblem<T>& p) {
  return takes_loads_of(NarrowThread<T, 1, Reads::along_rows>::kPerLoad, false, p.wide, p.batch);
}

}  // namespace fastgemm::FASTGEMM_TARGET
