// Products in which the bits of a row of C do not depend on the other rows or on their number
// (docs/invariant.md). They are computed by a row that obeys GemmProblem::invariant. Which row that is
// depends on the type, the layouts, n and k, but not on m; the row may have other kernels for few rows that
// add in the same order. Sums of integers are exact in any order. So if no row of an integer type obeys it,
// the fastest row computes the product.
#include "core/can_run.h"
#include "core/simulator.h"
#include "strategies/strategies.h"

namespace fastgemm::strategies {
namespace {

GemmProblem in_order(const GemmProblem& given) {
  GemmProblem p = given;
  p.invariant = true;
  return p;
}

}  // namespace

// A packed weight is multiplied by a row that takes it, or converted first.
const Kernel* invariant_row(const GemmProblem& p, Device device, int threads) {
  const bool complex = p.type >= DType::bits64;
  const Kernel* row = find_row(kernels_for(device), device, [&](const Kernel& k) {
    return k.invariant && k.invariant(p) && (complex ? k.complex : can_run(k, p));
  });
  return row || !is_integer(p.type) ? row : fastest(p, device, threads).row;
}

void gemm_invariant(const GemmProblem& given, Device device, Context& context) {
  const GemmProblem p = in_order(given);
  invariant_row(p, device, context.threads())->gemm(p, context);
}

const char* beyond_invariant(const GemmProblem& p, Device device) {
  if (p.precision != Precision::ieee && p.precision != Precision::bf16x6 && p.precision != Precision::tf32)
    return "it has only the precisions \"ieee\", \"bf16x6\" and \"tf32\"";
  return invariant_row(in_order(p), device, 1) ? nullptr
                                               : "m, n or k is beyond the rows that keep the order of sums";
}

bool fuses_invariantly(const GemmProblem& given, Device device) {
  const GemmProblem p = in_order(given);
  const Kernel* row = invariant_row(p, device, 1);
  return row && row->fuses && row->fuses(p);
}

}  // namespace fastgemm::strategies
