// The measurements of the library that ship with fastgemm (library_points.def).
#pragma once

#include <cstdint>
#include <span>

#include "cuda/gemm/predict/predict.h"

namespace fastgemm::predict {

// A product of contiguous matrices.
struct ShippedPoint {
  int32_t batch, m, n, k;
  bool a_transposed, b_transposed;
  int16_t percent_of_octave;  // the model's error: 100 if the library took twice as long

  GemmProblem problem(DType) const;
};

// All points of a type and precision, and the constants of their model.
struct ShippedSeries {
  DType type;
  Precision precision;
  Costs costs;
  std::span<const ShippedPoint> points;
};
std::span<const ShippedSeries> shipped_series();

}  // namespace fastgemm::predict
