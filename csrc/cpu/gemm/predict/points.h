// The errors of the predictions for products that were measured on the measured processors (points.def).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/measured_points.h"
#include "cpu/gemm/predict/families.h"

namespace fastgemm::cpu_predict {

// The coordinates of a product, from which distances between products are computed. A different layout is as
// far as two octaves of size, and so is twice the number of threads. The batch counts half: four times the
// batch is as far as twice the size.
using Points = MeasuredPoints<7>;
Points::Place place_of(const GemmProblem&, int threads);

inline constexpr int kMostMeasured = 6;     // kernels for one type, and torch
inline constexpr int16_t kNotTimed = -999;  // the kernel was much slower than the fastest

// A product of contiguous matrices.
struct ShippedPoint {
  int16_t threads;
  int32_t batch, m, n, k;
  bool a_transposed, b_transposed;
  // The error of each prediction: 100 if the kernel took twice as long as predicted.
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
