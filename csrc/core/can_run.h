// Whether a row of the table can run a problem here, and how long it would take: what a choice is made from.
#pragma once

#include <limits>
#include <string>

#include "core/table.h"

namespace fastgemm {

// The row of torch itself, and whether its global flags may let it round more than was asked for; then its
// product does not count.
bool is_framework(const Kernel&);
bool depends_on_flags(Op, Device, DType);

// Problem is GemmProblem, TransposeProblem or AddProblem.

// Why this row cannot run this problem in this process; empty when it can.
template <class Problem>
std::string obstacle(const Kernel&, const Problem&);

// Whether a row can run a problem; with `flags_allow`, if the framework's flags allow its product, or if they
// do not.
template <class Problem>
bool can_run(const Kernel&, const Problem&);
template <class Problem>
bool can_run(const Kernel&, const Problem&, bool flags_allow);

// How long a row would take, with the pass that it leaves; infinity where that is not known. With threads: on
// a CPU.
double predicted(const Kernel&, const GemmProblem&);
double predicted(const Kernel&, const GemmProblem&, int threads);
template <class Problem>
double predicted(const Kernel&, const Problem&, int = 0) {
  return std::numeric_limits<double>::infinity();
}

// Whether a row leaves the epilogue of a problem to a pass (finish.h).
bool leaves_pass(const Kernel&, const GemmProblem&);

}  // namespace fastgemm
