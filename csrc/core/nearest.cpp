#include "core/nearest.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fastgemm {
namespace {

// How much faster than a library's an own kernel has to be to replace it, in hundredths of an octave.
constexpr float kLibraryMargin = 3;  // two per cent

// The tables hold products without a c, and a key does not tell c from alpha. On a GPU an own kernel takes
// longer if it also reads a large c, relatively the longer the shorter its sums are, while a library hides
// that in its epilogue. So the margin grows as k shrinks.
float library_margin(const TuningKey& key) {
  constexpr int64_t kLargeC = 1 << 20;
  if (key.device != Device::cuda || !key.accumulates || key.batch * key.m * key.n < kLargeC)
    return kLibraryMargin;
  return kLibraryMargin + std::min(50.0f, 100 * std::log2(1 + 800.0f / float(std::max<int64_t>(key.k, 1))));
}

// Tables are measured with one thread and with all threads; a
// problem is compared with points of its own kind.
bool same_threads(const TuningKey& key, const Measured& p) {
  return key.device == Device::cuda || (key.threads == 1) == (p.threads == 1);
}
bool same_layout(const TuningKey& key, const Measured& p) {
  return key.a_transposed == p.a_transposed && key.b_transposed == p.b_transposed;
}
bool same_size(const TuningKey& key, const Measured& p) {
  return key.batch == p.batch && key.m == p.m && key.n == p.n && key.k == p.k;
}

Alignment alignment_of(const TuningKey& key, const Measured& p) {
  return {p.input_rows * element_size(key.type) >= 16, p.out_rows * element_size(key.out_type) >= 16};
}

// The squared distance between a problem and a point, in octaves. The batch counts half: four times the batch
// is like twice the size. On a GPU the size of all results of a batch together counts instead, since it says
// how many blocks there are to share out, and sizes beyond 4096 count a quarter, since the kernel that wins
// there goes on to win, and few points lie beyond 8192. An operand in another layout is like two octaves.
// Rows that start at multiples of 16 bytes for one of the two alone are like 2.4 octaves, since other rows
// cannot be read by TMA and slow cuBLAS down in 16-bit types.
struct Distance {
  const TuningKey& key;
  const float batch = log_size(key.batch), m = log_size(key.m), n = log_size(key.n), k = log_size(key.k);
  const bool aligns = key.op == Op::gemm;

  float to(const Measured& p) const {
    constexpr float kLarge = log_size(4096);
    const bool gpu = key.device == Device::cuda;
    const auto square = [](float x) { return x * x; };
    const auto seen = [&](float x) { return gpu && x > kLarge ? kLarge + 0.25f * (x - kLarge) : x; };
    const auto apart = [&](float x, float y) { return square(seen(x) - seen(y)); };
    const float sides = apart(m, p.log_m) + apart(n, p.log_n), members = square(batch - p.log_batch);
    if (!gpu) return sides + apart(k, p.log_k) + 0.25f * members;
    float d = sides + apart(k, p.log_k);
    if (key.batch > 1 || p.batch > 1)
      d += 0.1f * members - 0.5f * sides + square(batch + m + n - p.log_batch - p.log_m - p.log_n);
    d += 4.0f * float((key.a_transposed != p.a_transposed) + (key.b_transposed != p.b_transposed));
    if (!aligns) return d;
    const Alignment there = alignment_of(key, p);
    return d + 6.0f * float(there.inputs != key.alignment.inputs) +
           6.0f * float(there.out != key.alignment.out);
  }
};

struct Neighbours {
  static constexpr size_t kMost = 9;
  std::array<const Measured*, kMost> points{};
  std::array<float, kMost> distances;
};
Neighbours neighbours(const StaticTable& table, const TuningKey& key) {
  Neighbours found;
  found.distances.fill(std::numeric_limits<float>::infinity());
  const Distance distance{key};
  for (const Measured& p : table.points) {
    if (!same_threads(key, p)) continue;
    float d = distance.to(p);
    if (d >= found.distances.back()) continue;
    const Measured* point = &p;
    for (size_t i = 0; i < Neighbours::kMost && point; ++i)
      if (d < found.distances[i]) std::swap(d, found.distances[i]), std::swap(point, found.points[i]);
  }
  return found;
}

// A cautious estimate of a kernel's speed from its speeds at the neighbours.
float speed_of(size_t kernel, const Neighbours& near) {
  float weights = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < Neighbours::kMost && near.points[i]; ++i) {
    const float weight = 1 / (near.distances[i] + 0.05f), speed = near.points[i]->speeds[kernel];
    weights += weight, sum += weight * speed, squares += weight * speed * speed;
  }
  const float mean = sum / weights;
  return mean - 0.5f * std::sqrt(std::max(0.0f, squares / weights - mean * mean));
}

}  // namespace

Ranking rank(const StaticTable& table, const TuningKey& key) {
  const Neighbours near = neighbours(table, key);
  Ranking r;
  if (!near.points[0]) return r;
  const Measured& nearest = *near.points[0];
  const bool measured = !(key.accumulates && table.on_gpu()) && same_size(key, nearest) &&
                        same_layout(key, nearest) &&
                        (key.op != Op::gemm || alignment_of(key, nearest) == key.alignment);
  if (measured || table.speeds == 0) r.kernels[r.count++] = nearest.fastest;
  const float margin = library_margin(key);
  std::array<float, kMostSpeeds> speeds;
  for (size_t i = 0; i < table.speeds; ++i) {
    speeds[i] = speed_of(i, near);
    if (i < table.libraries) speeds[i] += margin;
    if (!measured || i != nearest.fastest) r.kernels[r.count++] = uint8_t(i);
  }
  std::sort(r.kernels.begin() + (measured ? 1 : 0), r.kernels.begin() + r.count,
            [&](uint8_t x, uint8_t y) { return speeds[x] > speeds[y]; });
  return r;
}

const StaticTable* static_table_for(const TuningKey& key, std::string_view device) {
  const StaticTable* ieee = nullptr;
  for (const StaticTable& table : static_tables()) {
    if (table.op != key.op || table.type != key.type || table.device != device) continue;
    if (table.precision == key.precision) return &table;
    if (table.precision == Precision::ieee) ieee = &table;
  }
  return ieee;
}

}  // namespace fastgemm
