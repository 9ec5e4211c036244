// How far predictions of the measured processors are off at products that were measured there (points.def).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/measured_points.h"
#include "cpu/gemm/predict/families.h"

namespace fastgemm::cpu_predict {

// Where a product lies among others. Another layout is like two octaves, and so are twice as many threads;
// the batch counts half: four times the batch is like twice the size.
using Points = MeasuredPoints<7>;
Points::Place place_of(const GemmProblem&, int threads);

inline constexpr int kMostMeasured = 6;     // kernels of a type, and torch
inline constexpr int16_t kNotTimed = -999;  // a kernel that was far behind

// A product of contiguous matrices.
struct ShippedPoint {
  int16_t threads;
  int32_t batch, m, n, k;
  bool a_transposed, b_transposed;
  // How far each prediction is off: 100 where a kernel took twice as long.
  std::array<int16_t, kMostMeasured> percents_of_octave;

  GemmProblem problem(DType) const;
};
struct ShippedSeries {
  Family family;
  DType type;
  std::array<Row, kMostMeasured> rows;
  std::span<const ShippedPoint> points;
};
std::span<const ShippedSeries> shipped_series();

}  // namespace fastgemm::cpu_predict
