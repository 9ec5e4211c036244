// How long a product would take on a CPU: the counts of counts.h times constants that were fitted to what was
// measured, costs.def or for this processor (set_costs). Rows of the kernel table predict through seconds_of.
#pragma once

#include <optional>
#include <string_view>

#include "cpu/gemm/predict/counts.h"

namespace fastgemm::cpu_predict {

// What each count costs, as a multiple of its nominal time. 0: nothing.
using Costs = Counts;

// Seconds, or infinity where the processor has no such unit or the row does not take the type.
double seconds(Row, const GemmProblem&, const Cpu&, int threads);

template <Row row>
double seconds_of(const GemmProblem& p, const Cpu& cpu, int threads) {
  return seconds(row, p, cpu, threads);
}

// The constants in force, if there are any; and those of a row and type in their place, until reset_costs().
// They hold for every processor that is asked about, so they are to be fitted on the one that multiplies.
// Both change tuning_version().
std::optional<Costs> costs_of(Row, DType, const Cpu&);
void set_costs(Row, DType, const Costs&);
void reset_costs();

std::optional<Row> row_of(std::string_view name);

}  // namespace fastgemm::cpu_predict
