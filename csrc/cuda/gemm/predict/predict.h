// Predicts the time of a kernel: the counts of counts.h times the kernel's constants.
#pragma once

#include <optional>

#include "core/gpu.h"
#include "cuda/gemm/launchers.h"
#include "cuda/gemm/predict/counts.h"

namespace fastgemm::predict {

// The constants of a kernel for a type: the cost of each count, or zero where it does not matter.
using Costs = Counts;

// `correction`: log(measured / predicted) of products nearby.
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

}  // namespace fastgemm::predict
