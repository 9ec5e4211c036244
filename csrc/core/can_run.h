// Whether a row of the table can run a problem here, and how long it would take. Both decide which kernel is
// chosen.
#pragma once

#include <limits>
#include <string>

#include "core/table.h"

namespace fastgemm {

// is_framework: whether this is the row of torch itself. depends_on_flags: whether torch's global flags may
// make its products of this type less precise than asked for; then its row is not used.
bool is_framework(const Kernel&);
bool depends_on_flags(Op, Device, DType);

// Problem is GemmProblem, TransposeProblem or AddProblem.

// Why this row cannot run this problem in this process; empty if it can.
template <class Problem>
std::string obstacle(const Kernel&, const Problem&);

// Whether a row can run a problem. With `flags_allow`, the framework's flags are not asked: the argument says
// whether they allow its product.
template <class Problem>
bool can_run(const Kernel&, const Problem&);
template <class Problem>
bool can_run(const Kernel&, const Problem&, bool flags_allow);

// How long a row would take, including its epilogue pass if it needs one; infinity if unknown. The version
// with `threads` is for a CPU.
double predicted(const Kernel&, const GemmProblem&);
double predicted(const Kernel&, const GemmProblem&, int threads);
template <class Problem>
double predicted(const Kernel&, const Problem&, int = 0) {
  return std::numeric_limits<double>::infinity();
}

// Whether the epilogue of a problem needs a pass after this row (epilogue_pass.h).
bool needs_pass(const Kernel&, const GemmProblem&);

}  // namespace fastgemm
