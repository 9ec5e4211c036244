// Strategies compute a product by other rows of their device. They stand above the table: they see the rows
// as select() does, and no row sees them.
#pragma once

#include "core/table.h"

namespace fastgemm::strategies {

// The problem for which a row is chosen. With an epilogue, c is left out: the epilogue adds it.
GemmProblem chosen_for(const GemmProblem&);

// Computes the product with the kernel of this row. If the kernel does not apply the epilogue, a pass does.
// Then sums of 16-bit types are stored as float32 if the row can store it, so that results are rounded once.
// If the result must be exactly symmetric, another pass copies its lower triangle to the upper one.
void run(const Kernel&, const GemmProblem&, Context&);

// The row of this library that is predicted to be the fastest, and its time. On a CPU `threads` is not 0.
// Rows without a prediction come last; null if no row takes the problem.
struct Pick {
  const Kernel* row = nullptr;
  double seconds = 0;
};
Pick fastest(const GemmProblem&, Device, int threads);

// symmetric.cpp
void gemm_symmetric(const GemmProblem&, Device, Context&);
double symmetric_seconds(const GemmProblem&, Device, int threads);

// invariant.cpp
void gemm_invariant(const GemmProblem&, Device, Context&);
const char* beyond_invariant(const GemmProblem&, Device);
bool fuses_invariantly(const GemmProblem&, Device);
// The row that computes a product of matrices in an order of sums that m does not change; null if none can.
const Kernel* invariant_row(const GemmProblem&, Device, int threads);

// dequantized.cpp
void gemm_dequantized(const GemmProblem&, Device, Context&);
const char* beyond_dequantized(const GemmProblem&, Device);
bool fuses_dequantized(const GemmProblem&, Device);
double dequantized_seconds(const GemmProblem&, Device, int threads);

// Calls body for each row of this library that a level may choose for the op, until it returns true.
template <class Body>
const Kernel* find_row(std::span<const Kernel> table, Device device, const Body& body) {
  constexpr int kLibrary = 7;
  for (const Kernel& k : table)
    if (k.op == Op::gemm && k.device == device && k.role == Role::rung && k.level < kLibrary && body(k))
      return &k;
  return nullptr;
}

}  // namespace fastgemm::strategies
