// Predicts the time of a product on a CPU. The counts of counts.h are multiplied by constants that were
// fitted to measurements (costs.def, or set_costs() for this processor), and corrected by the errors at
// measured products nearby (points.h). Rows of the kernel table call seconds_of().
#pragma once

#include <optional>
#include <string_view>

#include "cpu/gemm/predict/counts.h"

namespace fastgemm::cpu_predict {

// The cost of each count, as a multiple of its nominal time; 0 if it has none.
using Costs = Counts;

// The predicted seconds. Infinity if the processor lacks the unit, or the row does not take the type.
double seconds(Row, const GemmProblem&, const Cpu&, int threads);

template <Row row>
double seconds_of(const GemmProblem& p, const Cpu& cpu, int threads) {
  return seconds(row, p, cpu, threads);
}

// The constants in use, if there are any.
std::optional<Costs> costs_of(Row, DType, const Cpu&);
// Replaces the constants of a row and type, and discards their points, until reset_costs(). They are used for
// every processor that is asked about, so fit them on the processor that multiplies.
void set_costs(Row, DType, const Costs&);
// Adds the time of a row that was measured here. Predictions of similar products follow it. Does nothing if
// the row is not predicted.
void add_point(Row, const GemmProblem&, int threads, double measured);
void reset_costs();
// All three change tuning_version().

// How predictions for a processor are made.
enum class Knowledge {
  predicted,  // nothing was measured; the constants are those of the most similar processor
  measured,   // constants and points of this family ship with fastgemm
  tuned,      // `fastgemm tune` measured this very processor
};
Knowledge knowledge_of(const Cpu&);

std::optional<Row> row_of(std::string_view name);

}  // namespace fastgemm::cpu_predict
