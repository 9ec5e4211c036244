// The errors of a model at measured points, and the correction that follows for other points.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace fastgemm {

template <int kAxes>
class MeasuredPoints {
 public:
  using Place = std::array<float, kAxes>;

  // A measured point, and log(measured / model) there.
  void add(const Place& at, float off) {
    if (count_ % kLanes == 0) blocks_.push_back(kNowhere);
    Block& block = blocks_.back();
    for (int axis = 0; axis < kAxes; ++axis) block.at[axis][count_ % kLanes] = at[axis];
    block.off[count_++ % kLanes] = off;
  }
  // The same, but replaces an earlier measurement at this place.
  void put(const Place& at, float off) {
    for (size_t i = 0; i < count_; ++i) {
      Block& block = blocks_[i / kLanes];
      bool same = true;
      for (int axis = 0; axis < kAxes; ++axis) same &= block.at[axis][i % kLanes] == at[axis];
      if (same) return void(block.off[i % kLanes] = off);
    }
    add(at, off);
  }
  // The estimated error of the model at a place: the mean of the nine nearest points, weighted by nearness.
  // It tends to 0 if all points are far.
  float correction(const Place& at) const {
    constexpr size_t kNearest = 9;
    std::array<float, kNearest> distances, values{};
    distances.fill(std::numeric_limits<float>::infinity());
    for (const Block& block : blocks_) {
      const Lanes found = block.distances(at);
      for (int lane = 0; lane < kLanes; ++lane) {
        float d = found[lane], value = block.off[lane];
        if (d >= distances.back()) continue;
        for (size_t j = 0; j < kNearest; ++j)
          if (d < distances[j]) std::swap(d, distances[j]), std::swap(value, values[j]);
      }
    }
    const auto weight = [](float d) { return 1 / ((d + 0.05f) * std::sqrt(d + 0.05f)); };
    float weights = 0.5f * weight(4), sum = 0;
    for (size_t j = 0; j < kNearest && distances[j] < 40; ++j) {
      weights += weight(distances[j]);
      sum += weight(distances[j]) * values[j];
    }
    return sum / weights;
  }

 private:
  // Points are stored side by side, so that vector instructions compute several distances at once: each new
  // signature of a call needs the distances to all points.
  static constexpr int kLanes = 16;
  using Lanes = std::array<float, kLanes>;
  struct Block {
    std::array<Lanes, kAxes> at;
    Lanes off;

    Lanes distances(const Place& from) const {
      Lanes sum{};
      for (int axis = 0; axis < kAxes; ++axis)
        for (int lane = 0; lane < kLanes; ++lane) {
          const float apart = from[axis] - at[axis][lane];
          sum[lane] += apart * apart;
        }
      return sum;
    }
  };
  static constexpr Block kNowhere = [] {
    Block b{};
    for (Lanes& axis : b.at) axis.fill(1e9f);
    return b;
  }();

  std::vector<Block> blocks_;
  size_t count_ = 0;
};

}  // namespace fastgemm
