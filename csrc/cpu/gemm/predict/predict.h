// How long a product would take on a CPU: the counts of counts.h times constants that were fitted to what was
// measured (costs.def, or for this processor set_costs), corrected by what was measured nearby (points.h).
// Rows of the kernel table predict through seconds_of.
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

// The constants in force, if there are any.
std::optional<Costs> costs_of(Row, DType, const Cpu&);
// Those of a row and type in their place, without points, until reset_costs(). They hold for every processor
// that is asked about, so they are to be fitted on the one that multiplies.
void set_costs(Row, DType, const Costs&);
// What a row took here: predictions of products nearby follow. Nothing where the row is not predicted.
void add_point(Row, const GemmProblem&, int threads, double measured);
void reset_costs();
// All three change tuning_version().

// What is known of a processor.
enum class Knowledge {
  predicted,  // nothing was measured: constants are those of the processor that it is most like
  measured,   // constants and points of this family ship with fastgemm
  tuned,      // `fastgemm tune` measured this very processor
};
Knowledge knowledge_of(const Cpu&);

std::optional<Row> row_of(std::string_view name);

}  // namespace fastgemm::cpu_predict
