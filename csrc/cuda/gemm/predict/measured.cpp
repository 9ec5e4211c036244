// The series of predictions, and the measured products that ship.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <span>

#include "core/contiguous_product.h"
#include "core/tuning.h"
#include "cuda/gemm/predict/facts.h"
#include "cuda/gemm/predict/predict.h"

namespace fastgemm::predict {
namespace {

// A product of contiguous matrices, and how far each model is off: 100 if it took twice as long.
template <int kModels>
struct ShippedPoint {
  int32_t batch, m, n, k;
  bool a_transposed, b_transposed;
  std::array<int16_t, kModels> percents_of_octave;
};
constexpr int kMostColumns = 12;
using LibraryPoint = ShippedPoint<1>;
using HalfPoint = ShippedPoint<kMostColumns>;  // of 16-bit types: the rows, then the library in each type

constexpr bool N = false, T = true;  // layouts
#include "cuda/gemm/predict/half_points.def"
#include "cuda/gemm/predict/library_points.def"
constexpr DType kHalfTypes[] = {DType::f16, DType::bf16};
static_assert(std::size(kMeasuredRows) + std::size(kHalfTypes) <= kMostColumns);

struct ShippedSeries {
  DType type;
  Precision precision;
  Costs costs;
  std::span<const LibraryPoint> points;
};
constexpr ShippedSeries kLibrary[] = {
#define FASTGEMM_LIBRARY(points, type, precision, ...) \
  {DType::type, Precision::precision, {__VA_ARGS__}, points},
#include "cuda/gemm/predict/library_costs.def"
};

template <int kModels>
MeasuredPoints<kAxes, kModels> measured(std::span<const ShippedPoint<kModels>> points, DType type) {
  constexpr float kOctave = 0.69314718f;  // ln 2
  MeasuredPoints<kAxes, kModels> found;
  for (const auto& p : points) {
    std::array<float, kModels> offs;
    std::ranges::transform(p.percents_of_octave, offs.begin(),
                           [](int percents) { return float(percents) / 100 * kOctave; });
    found.add(place_of(contiguous_product({p.batch, p.m, p.n, p.k}, p.a_transposed, p.b_transposed, type)),
              offs);
  }
  return found;
}

struct AllSeries {
  std::shared_mutex mutex;
  std::map<SeriesKey, std::shared_ptr<const Series>> series;
  std::atomic<bool> any_tuned = false;

  AllSeries() {
    for (const ShippedSeries& s : kLibrary)
      series[{kShipped, std::nullopt, s.type, s.precision}] =
          std::make_shared<const Series>(Series{s.costs, measured(s.points, s.type)});
  }
};
AllSeries& all() {
  static AllSeries all;
  return all;
}

// The corrections of 16-bit products at a place: of kMeasuredRows, then of the library.
const std::array<float, kMostColumns>& half_corrections(const GemmProblem& p) {
  static const auto points = measured<kMostColumns>(kHalfPoints, DType::bf16);
  // The rows of a product are predicted one after another, at the same place.
  thread_local Place last{-1};  // not the place of a product
  thread_local std::array<float, kMostColumns> corrections;
  if (const Place at = place_of(p); at != last) corrections = points.corrections(at), last = at;
  return corrections;
}

float log2_of(int64_t n) { return std::log2(float(std::max<int64_t>(n, 1))); }

}  // namespace

std::shared_ptr<const Series> find_series(const SeriesKey& key) {
  AllSeries& found = all();
  if (key.gpu != kShipped && !found.any_tuned) return nullptr;
  const std::shared_lock lock(found.mutex);
  const auto it = found.series.find(key);
  return it == found.series.end() ? nullptr : it->second;
}

bool has_series(uint64_t gpu) {
  const std::shared_lock lock(all().mutex);
  return gpu != kShipped &&
         std::ranges::any_of(all().series, [&](const auto& s) { return s.first.gpu == gpu; });
}

void set_series(const SeriesKey& key, Series series) {
  {
    const std::unique_lock lock(all().mutex);
    all().series.insert_or_assign(key, std::make_shared<const Series>(std::move(series)));
    all().any_tuned = true;
  }
  tuning_changed();
}

void reset_series() {
  {
    const std::unique_lock lock(all().mutex);
    std::erase_if(all().series, [](const auto& s) { return s.first.gpu != kShipped; });
    all().any_tuned = false;
  }
  tuning_changed();
}

// The weights of the axes, in octaves of m, n or k. Another layout counts as a distance of two octaves. An
// alignment of rows to 16 or to 4 bytes counts as 1.7, and one to 8 bytes as 1.2. An octave of the batch
// counts about half.
Place place_of(const GemmProblem& p) {
  const Facts f = facts(p);
  constexpr float kBatch = 0.5477f, kLayout = 2, kAligned = 1.7321f, kHalf = 1.2247f;
  Place place{log2_of(f.m),
              log2_of(f.n),
              log2_of(f.k),
              kBatch * log2_of(f.batch),
              f.a.along_k ? 0 : kLayout,
              f.b.along_k ? 0 : kLayout};
  auto at = place.begin() + 6;
  for (const auto& [bytes, weight] : {std::pair{16, kAligned}, {8, kHalf}, {4, kAligned}})
    for (const int alignment : {f.a.alignment, f.b.alignment, f.out_alignment})
      *at++ = alignment >= bytes ? weight : 0;
  return place;
}

double row_correction(Row row, const GemmProblem& p) {
  const auto* const found = std::ranges::find(kMeasuredRows, row);
  if (!is_half(p.type) || found == std::end(kMeasuredRows)) return 0;
  return half_corrections(p)[size_t(found - std::begin(kMeasuredRows))];
}

double half_library_correction(const GemmProblem& p) {
  return half_corrections(p)[std::size(kMeasuredRows) + (p.type == kHalfTypes[1])];
}

}  // namespace fastgemm::predict
