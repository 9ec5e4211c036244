#include "core/nearest.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fastgemm {
namespace {

// How much faster an own kernel must be to replace a library's, in hundredths of an octave.
constexpr float kLibraryMargin = 3;  // two per cent

// Tables have points for one thread and for all threads. A problem is compared only with points of its kind.
bool same_threads(const TuningKey& key, const Measured& p) {
  return key.device == Device::cuda || (key.threads == 1) == (p.threads == 1);
}
bool same_layout(const TuningKey& key, const Measured& p) {
  return key.a_transposed == p.a_transposed && key.b_transposed == p.b_transposed;
}
bool same_size(const TuningKey& key, const Measured& p) {
  return key.batch == p.batch && key.m == p.m && key.n == p.n && key.k == p.k;
}

// The squared distance between a problem and a measured point, in octaves. The batch counts half: four times
// the batch is as far as twice the size. An operand in another layout counts as two octaves.
struct Distance {
  const TuningKey& key;
  const float batch = log_size(key.batch), m = log_size(key.m), n = log_size(key.n), k = log_size(key.k);

  float to(const Measured& p) const {
    const auto square = [](float x) { return x * x; };
    return square(m - p.log_m) + square(n - p.log_n) + square(k - p.log_k) +
           0.25f * square(batch - p.log_batch) +
           4.0f * float((key.a_transposed != p.a_transposed) + (key.b_transposed != p.b_transposed));
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

// A cautious estimate of a kernel's speed from its speeds at the nearest points.
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
  const bool measured = same_size(key, nearest) && same_layout(key, nearest);
  if (measured || table.speeds == 0) r.kernels[r.count++] = nearest.fastest;
  std::array<float, kMostSpeeds> speeds;
  for (size_t i = 0; i < table.speeds; ++i) {
    speeds[i] = speed_of(i, near);
    if (i < table.libraries) speeds[i] += kLibraryMargin;
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
