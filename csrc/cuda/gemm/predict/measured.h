// The data of predictions: the fitted constants of a row or of the library, and measured products that say
// how far a prediction is off nearby. Some ship with fastgemm, measured on an H200; `fastgemm tune` sets
// those of the GPU at hand.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "core/measured_points.h"
#include "cuda/gemm/predict/predict.h"

namespace fastgemm::predict {

// The coordinates of a product, from which distances between products are computed.
inline constexpr int kAxes = 15;
using Place = std::array<float, kAxes>;
Place place_of(const GemmProblem&);

struct Series {
  Costs costs;
  MeasuredPoints<kAxes> points;  // log(measured / predicted); none for rows
};
struct SeriesKey {
  uint64_t gpu;            // gpu_number(), or kShipped
  std::optional<Row> row;  // none: the library
  DType type;
  Precision precision = Precision::ieee;
  auto operator<=>(const SeriesKey&) const = default;
};
inline constexpr uint64_t kShipped = 0;

// A series is never changed, only replaced. Null if there is none.
std::shared_ptr<const Series> find_series(const SeriesKey&);
bool has_series(uint64_t gpu);
// Both change tuning_version(). reset_series() returns to the series that ship.
void set_series(const SeriesKey&, Series);
void reset_series();

// log(measured / predicted) of kernels for 16-bit types, which were measured in CUDA graphs; 0 for other rows
// and types.
double row_correction(Row, const GemmProblem&);

}  // namespace fastgemm::predict
