#include "cuda/gemm/predict/row_points.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "core/contiguous_product.h"
#include "core/measured_points.h"
#include "cuda/gemm/predict/library.h"

namespace fastgemm::predict {
namespace {

constexpr int kMostRows = 10;

// A product of contiguous matrices, and how far each row's prediction is off: 100 if it took twice as long.
struct RowPoint {
  int32_t batch, m, n, k;
  bool a_transposed, b_transposed;
  std::array<int16_t, kMostRows> percents_of_octave;
};

constexpr bool N = false, T = true;  // layouts
#include "cuda/gemm/predict/row_points.def"
static_assert(std::size(kMeasuredRows) <= kMostRows);

using Points = MeasuredPoints<kAxes, kMostRows>;

Points shipped() {
  constexpr float kOctave = 0.69314718f;  // ln 2
  Points points;
  for (const RowPoint& point : kRowPoints) {
    Points::Offs offs;
    std::ranges::transform(point.percents_of_octave, offs.begin(),
                           [](int percents) { return float(percents) / 100 * kOctave; });
    points.add(place_of(contiguous_product({point.batch, point.m, point.n, point.k}, point.a_transposed,
                                           point.b_transposed, DType::bf16)),
               offs);
  }
  return points;
}

// The rows of a product are predicted one after another, at the same place.
const Points::Offs& corrections_at(const Place& at) {
  static const Points points = shipped();
  thread_local Place last{-1};  // not the place of a product
  thread_local Points::Offs corrections;
  if (at != last) corrections = points.corrections(at), last = at;
  return corrections;
}

}  // namespace

double row_correction(Row row, const GemmProblem& p) {
  if (p.type != DType::f16 && p.type != DType::bf16) return 0;
  const auto* const found = std::ranges::find(kMeasuredRows, row);
  if (found == std::end(kMeasuredRows)) return 0;
  return corrections_at(place_of(p))[size_t(found - std::begin(kMeasuredRows))];
}

}  // namespace fastgemm::predict
