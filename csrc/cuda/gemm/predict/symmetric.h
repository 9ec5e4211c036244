// How the row `symmetric` goes about a product, and how long that is predicted to take.
#pragma once

#include "core/table.h"

namespace fastgemm::predict {

// The lower triangle is computed in blocks (core/triangle.h), each by the row of this library that is
// predicted to take least. Those on the diagonal may have a row that leaves out what lies above it.
struct SymmetricPlan {
  const Kernel* on_diagonal = nullptr;  // null: whichever is the fastest for the whole block
  int64_t least = 0;                    // extent of a block on the diagonal (diagonal_block())
  double seconds = 0;                   // infinity where no row is predicted
  bool mirrors = false;                 // on_diagonal computes it in one, and stores both triangles
};
SymmetricPlan plan_symmetric(const GemmProblem&, const Gpu&);

// The row of this library that is predicted to take least for a block; null where there is none.
const Kernel* fastest_row(const GemmProblem&, const Gpu&);

// For the kernel table; infinity for problems that are not symmetric.
double symmetric_seconds(const GemmProblem&, const Gpu&);

}  // namespace fastgemm::predict
