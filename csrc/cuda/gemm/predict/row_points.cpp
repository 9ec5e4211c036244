#include "cuda/gemm/predict/row_points.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "core/measured_points.h"
#include "cuda/gemm/predict/library.h"
#include "cuda/gemm/predict/library_points.h"

namespace fastgemm::predict {
namespace {

constexpr int kMostRows = 10;
constexpr int16_t kNotTimed = -999;  // the row does not take this product

// A product of contiguous matrices, and how far each row's prediction is off: 100 if it took twice as long.
struct RowPoint {
  int32_t batch, m, n, k;
  bool a_transposed, b_transposed;
  std::array<int16_t, kMostRows> percents_of_octave;
};

constexpr bool N = false, T = true;  // layouts
#include "cuda/gemm/predict/row_points.def"
static_assert(std::size(kMeasuredRows) <= kMostRows);

using Points = MeasuredPoints<kAxes>;

std::array<Points, kMostRows> shipped() {
  constexpr float kOctave = 0.69314718f;  // ln 2
  std::array<Points, kMostRows> points;
  for (const RowPoint& point : kRowPoints) {
    const Place at = place_of(product({point.batch, point.m, point.n, point.k}, point.a_transposed,
                                      point.b_transposed, DType::bf16));
    for (size_t i = 0; i < std::size(kMeasuredRows); ++i)
      if (const int percents = point.percents_of_octave[i]; percents != kNotTimed)
        points[i].add(at, float(percents) / 100 * kOctave);
  }
  return points;
}

}  // namespace

double row_correction(Row row, const GemmProblem& p) {
  if (p.type != DType::f16 && p.type != DType::bf16) return 0;
  const auto* const found = std::ranges::find(kMeasuredRows, row);
  if (found == std::end(kMeasuredRows)) return 0;
  static const std::array<Points, kMostRows> points = shipped();
  return points[size_t(found - std::begin(kMeasuredRows))].correction(place_of(p));
}

}  // namespace fastgemm::predict
