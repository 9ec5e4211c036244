// How the row `symmetric` computes a product, and the predicted time.
#pragma once

#include "core/table.h"

namespace fastgemm::predict {

// The lower triangle is computed in blocks (core/triangle.h), each by the row of this library that is
// predicted to be the fastest. Blocks on the diagonal may be computed by a row that skips the part above it.
struct SymmetricPlan {
  const Kernel* on_diagonal = nullptr;  // null: the fastest row computes the whole block
  int64_t least = 0;                    // the least extent of a block on the diagonal (diagonal_block())
  double seconds = 0;                   // infinity if no row is predicted
  bool mirrors = false;                 // on_diagonal computes all of C at once, and stores both triangles
};
SymmetricPlan plan_symmetric(const GemmProblem&, const Gpu&);

// The row of this library that is predicted to be the fastest for a block. Null if there is none.
const Kernel* fastest_row(const GemmProblem&, const Gpu&);

// The prediction for the kernel table. Infinity for problems that are not symmetric.
double symmetric_seconds(const GemmProblem&, const Gpu&);

}  // namespace fastgemm::predict
