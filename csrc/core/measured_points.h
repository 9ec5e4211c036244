// The errors of models at measured points, and the corrections that follow for other points.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace fastgemm {

template <int kAxes, int kModels = 1>
class MeasuredPoints {
 public:
  using Place = std::array<float, kAxes>;
  using Offs = std::array<float, kModels>;

  // A measured point, and log(measured / model) there.
  void add(const Place& at, const Offs& offs) {
    const size_t lane = offs_.size() % kLanes;
    if (lane == 0) blocks_.push_back(kNowhere);
    for (int axis = 0; axis < kAxes; ++axis) blocks_.back().at[axis][lane] = at[axis];
    offs_.push_back(offs);
  }
  // The same, but replaces an earlier measurement at this place.
  void put(const Place& at, const Offs& offs) {
    for (size_t i = 0; i < offs_.size(); ++i) {
      bool same = true;
      for (int axis = 0; axis < kAxes; ++axis) same &= blocks_[i / kLanes].at[axis][i % kLanes] == at[axis];
      if (same) return void(offs_[i] = offs);
    }
    add(at, offs);
  }
  // The estimated error of the model at a place: the mean of the nine nearest points, weighted by nearness.
  // It tends to 0 if all points are far.
  float correction(const Place& at) const
    requires(kModels == 1)
  {
    return corrections(at)[0];
  }
  // The same for each model.
  Offs corrections(const Place& at) const {
    constexpr size_t kNearest = 9;
    std::array<float, kNearest> distances;
    std::array<size_t, kNearest> nearest{};
    distances.fill(std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const Lanes found = blocks_[i].distances(at);
      for (int lane = 0; lane < kLanes; ++lane) {
        float d = found[lane];
        if (d >= distances.back()) continue;
        size_t point = i * kLanes + lane;
        for (size_t j = 0; j < kNearest; ++j)
          if (d < distances[j]) std::swap(d, distances[j]), std::swap(point, nearest[j]);
      }
    }
    const auto weight = [](float d) { return 1 / ((d + 0.05f) * std::sqrt(d + 0.05f)); };
    float weights = 0.5f * weight(4);
    Offs sums{};
    for (size_t j = 0; j < kNearest && distances[j] < 40; ++j) {
      weights += weight(distances[j]);
      for (int model = 0; model < kModels; ++model)
        sums[model] += weight(distances[j]) * offs_[nearest[j]][model];
    }
    for (float& sum : sums) sum /= weights;
    return sums;
  }

 private:
  // Points are stored side by side, so that vector instructions compute several distances at once: each new
  // signature of a call needs the distances to all points.
  static constexpr int kLanes = 16;
  using Lanes = std::array<float, kLanes>;
  struct Block {
    std::array<Lanes, kAxes> at;

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
  std::vector<Offs> offs_;
};

}  // namespace fastgemm
