// How a narrow product (fast/narrow.cu) is distributed over threads. Its shape decides.
#pragma once

#include <bit>
#include <limits>

#include "cuda/gemm/predict/plans.h"

namespace fastgemm::plans {

inline constexpr int kNarrowThreads = 256;
inline constexpr int64_t kMostNarrowPart = 1 << 30;  // the most values of k for a block

// The elements that one load of the wide side X reads: one element, neighbours along k (a load of the narrow
// side Y then reads the same number), or neighbouring rows.
enum class Reads : uint8_t { elements, along_k, along_rows };
// The elements of a load of a thread that has one row of Y.
constexpr int narrow_load(int element_bytes) { return std::min(16 / element_bytes, 8); }

// The work of one thread in a step: it multiplies `rows` rows of X by `narrow` rows of Y, `unroll` times
// along k. With a single row of Y, all loads of X that it has in flight are along k.
struct NarrowThread {
  Reads reads;
  int element_bytes, narrow;

  constexpr bool vector_rows() const { return reads == Reads::along_rows; }
  constexpr int per_load() const {
    const int most = vector_rows() && narrow > 1 ? 4 : 8;
    return reads == Reads::elements ? 1 : std::min(16 / element_bytes, most);
  }
  constexpr int per_load_k() const { return reads == Reads::along_k ? per_load() : 1; }
  // The number is limited by registers: vectors of 16-bit elements take twice their size when they are
  // widened.
  constexpr int row_loads() const {
    return vector_rows() || narrow == 1 ? 1 : narrow > 4 && element_bytes != 4 ? 2 : 4;
  }
  constexpr int rows() const { return vector_rows() ? per_load() : row_loads(); }
  constexpr int unroll() const {
    if (narrow == 1) return reads == Reads::along_k ? 4 : 8;
    if (reads == Reads::along_k) return narrow > 4 && element_bytes == 8 ? 2 : 1;
    if (reads == Reads::elements) return narrow > 4 ? 2 : 4;
    return narrow * element_bytes > 32 ? 2 : 4;
  }
  constexpr int step_k() const { return per_load_k() * unroll(); }
  constexpr int resident() const { return narrow == 1 ? 3 : 2; }  // blocks on a multiprocessor
};

// X is the wide side, (wide, k), and Y the narrow one, (narrow, k), of each matrix.
struct NarrowShape {
  int64_t batch, wide, narrow, k;
  bool wide_along_k;  // neighbours along k lie next to each other in X

  // Whether neighbouring threads should have neighbours along k, instead of neighbouring rows.
  bool lines_along_k(Reads reads) const {
    return reads == Reads::along_k || (reads == Reads::elements && wide_along_k);
  }
};

struct NarrowPlan {
  int threads_rows = 1;      // threads of a block along rows; the others share k
  int splits = 1, part = 0;  // the number of blocks that share k, and the values of k of each
  int64_t sums = 0;          // that each warp adds in turn
  double microseconds = std::numeric_limits<double>::infinity();  // as planned, without the launch
};

// Returns the plan that is predicted to be the fastest, by a model fitted to an H200: each step of a thread
// waits for memory after the step before, blocks share the bandwidth of a multiprocessor, and one warp adds
// each value over the threads that share rows.
inline NarrowPlan plan_narrow(const NarrowThread& t, const NarrowShape& p, int64_t processors) {
  constexpr double kStep = 0.55, kBlock = 0.7, kSums = 0.12, kBytes = 40e3, kLatency = 1.5,
                   kSecondLaunch = 1.8;
  constexpr int64_t kAll = kNarrowThreads, kLongestChain = 512, kMostRows = 64;
  const auto power = [](int64_t x) { return int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(x, 1)))); };
  const int64_t thread_rows = t.rows(), step_k = t.step_k(), rows = ceil_div(p.wide, thread_rows), k = p.k;
  // Neighbouring threads read whole lines. A thread adds at most 512 values one after another, or a 256th of
  // k if that is more. This limits the error of float32 sums. Around k = 8192 it is 6 u for uniformly
  // distributed numbers; with 1024 values one after another, it would be 11 u (both were emulated).
  const int64_t line = t.per_load() > 1 ? 8 : 32;
  const int64_t most_k = std::min(power(ceil_div(k, step_k)), kAll);
  const int64_t least_k = std::min(power(ceil_div(k, kLongestChain)), kAll);
  int64_t most = std::min({power(rows), kMostRows, kAll / least_k});
  const bool along_k = p.lines_along_k(t.reads);
  if (along_k) most = std::min(most, kAll / std::min(most_k, line));
  int64_t least = std::min(most, kAll / most_k);
  if (!along_k) least = std::max(least, std::min(most, line));
  const int64_t slots = t.resident() * processors, columns = p.batch * ceil_div(p.narrow, t.narrow);
  const int64_t least_splits = std::max<int64_t>(ceil_div(k, kMostNarrowPart), 1);
  const int64_t values = ceil_div(thread_rows * t.narrow, kNarrowThreads / 32);
  // With a single row of Y and loads of neighbouring rows of X, the bytes that all blocks have in flight
  // limit the bandwidth. (With more rows or other loads, plans that assume this limit were measured to be 5
  // to 20 % slower.)
  const bool waits = t.vector_rows() && p.narrow == 1 && t.element_bytes <= 4;
  const double in_flight =
      waits ? double(kNarrowThreads * t.unroll() * t.per_load() * t.element_bytes) / kLatency : kBytes;
  NarrowPlan best;
  for (int64_t threads = least; threads <= most; threads *= 2) {
    const int64_t step = kAll / threads * step_k, steps = std::max<int64_t>(ceil_div(k, step), 1);
    const int64_t tiles = columns * ceil_div(rows, threads), sums = ceil_div(threads, 32) * values;
    const auto consider = [&](int64_t wanted) {
      const int64_t part_steps = ceil_div(steps, wanted);
      const int64_t splits = ceil_div(steps, part_steps), blocks = tiles * splits;
      const int64_t waves = ceil_div(blocks, slots);
      const double bytes = double(blocks) * double(threads * thread_rows + t.narrow) *
                           double(std::min(part_steps * step, k)) * t.element_bytes;
      const double time =
          std::max(double(waves) * (kBlock + double(part_steps) * kStep + kSums * double(sums)),
                   bytes / std::min(kBytes * double(std::min(blocks, processors)),
                                    in_flight * double(std::min(blocks, slots)))) +
          (splits > 1 ? kSecondLaunch : 0);
      if (time < best.microseconds) best = {int(threads), int(splits), int(part_steps * step), sums, time};
    };
    const int64_t room = std::min<int64_t>({steps, 64, std::max<int64_t>(slots / tiles, 1)});
    consider(least_splits);
    if (room > least_splits) consider(room);
  }
  return best;
}

struct NarrowChoice {
  NarrowThread thread;
  NarrowPlan plan;
};
// With one row of Y in a thread, blocks are many and small. With eight, X is read the fewest times.
inline NarrowChoice choose_narrow(Reads reads, int element_bytes, const NarrowShape& p, int64_t processors) {
  constexpr int64_t kMostBlocksY = 65535;
  NarrowChoice best{};
  for (const int narrow : {1, 4, 8}) {
    const bool is_idle = narrow == 4 ? p.narrow == 1 : narrow == 8 && p.narrow <= 4;
    if (is_idle || (narrow < 8 && p.narrow > kMostBlocksY)) continue;
    const NarrowThread thread{reads, element_bytes, narrow};
    const NarrowPlan plan = plan_narrow(thread, p, processors);
    if (plan.microseconds < best.plan.microseconds) best = {thread, plan};
  }
  return best;
}

}  // namespace fastgemm::plans
