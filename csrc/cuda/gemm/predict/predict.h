// Predicts the time of a kernel: the counts of counts.h times the kernel's constants. The kernels of the
// vendor's library are not known, so its time was measured: a model of the counts says how it grows, and
// measured products nearby say how far the model is off. The fitted constants and some measured products
// ship with fastgemm, from an H200; `fastgemm tune` sets those of the GPU at hand.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "core/gpu.h"
#include "core/measured_points.h"
#include "cuda/gemm/launchers.h"
#include "cuda/gemm/predict/counts.h"

namespace fastgemm::predict {

// The constants of a kernel for a type: the cost of each count, or zero where it does not matter.
using Costs = Counts;

// `correction`: log(measured / predicted) of products nearby, of the time before its lower limit.
double time_before_limit(const Counts&, const Costs&);
double time_of(const Counts&, const Costs&, double correction = 0);

// The predicted seconds, or infinity if there are no constants for the type.
double seconds(Row, Counter, const GemmProblem&, const Gpu&);

// The constants of a row on a GPU, if there are any.
std::optional<Costs> costs_of(Row, DType, const Gpu&);

// A row and its counter, by name. Null for rows that are not predicted.
struct PredictedRow {
  std::string_view name;
  Row row;
  Counter count;
};
const PredictedRow* predicted_row(std::string_view name);

// How predictions for a GPU are made.
enum class Knowledge {
  predicted,  // nothing was measured; the library is assumed to reach the GPU's limits
  measured,   // kernels and library were measured on this type of GPU; constants ship with fastgemm
  tuned,      // `fastgemm tune` measured this very GPU
};
Knowledge knowledge_of(const Gpu&);

// The seconds that the library takes for a product. Where it was not measured, this is a lower limit, from
// the rate of the units that it has to use and the bandwidth of memory.
double library_seconds(const GemmProblem&, const Gpu&);
// The time that an own kernel has to beat to be taken.
double library_to_beat(const GemmProblem&, const Gpu&);

// The coordinates of a product, from which distances between products are computed.
inline constexpr int kAxes = 15;
using Place = std::array<float, kAxes>;
Place place_of(const GemmProblem&);

// The data of a row or of the library (measured.cpp).
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
// and types. half_library_correction() is that of the library, for 16-bit types only.
double row_correction(Row, const GemmProblem&);
double half_library_correction(const GemmProblem&);
constexpr bool is_half(DType type) { return type == DType::f16 || type == DType::bf16; }

// Predictions of the kernels of groups of uneven size and of packed weights, by a few rates (rates.cpp).
using Seconds = double(const GemmProblem&, const Gpu&);
Seconds grouped_wgmma_seconds, grouped_bf16x6_seconds, grouped_mma_seconds, scaled_wgmma_seconds,
    scaled_skinny_seconds, packed_wgmma_seconds, packed_tiles_seconds, packed_mma_seconds;

}  // namespace fastgemm::predict
