#include "core/can_run.h"
#include "core/passes.h"
#include "strategies/strategies.h"

namespace fastgemm::strategies {
namespace {

void multiply_then_pass(const Kernel& row, const GemmProblem& p, Context& context) {
  GemmProblem sums = sums_of(p);
  if (p.out_type == DType::f16 || p.out_type == DType::bf16) {
    GemmProblem wide = sums;
    wide.out_type = DType::f32;
    const int64_t pitch = (p.n + 3) / 4 * 4;  // each row starts at a multiple of 16 bytes
    wide.out = {nullptr, pitch, 1, p.m * pitch};
    if (!row.rejects || !row.rejects(wide)) {
      wide.out.data = context.allocate(size_t(p.batch * p.m * pitch) * sizeof(float));
      sums = wide;
    }
  }
  row.gemm(sums, context);
  passes_of(row.device).epilogue(pass_after(p, sums), context);
}

}  // namespace

GemmProblem chosen_for(const GemmProblem& p) {
  if (!p.finishes()) return p;
  GemmProblem q = sums_of(p);
  q.epilogue = p.epilogue, q.scales = p.scales;
  return q;
}

void run(const Kernel& row, const GemmProblem& p, Context& context) {
  needs_pass(row, p) ? multiply_then_pass(row, p, context) : row.gemm(p, context);
  if (p.symmetry.asked && row.role != Role::shortcut) passes_of(row.device).mirror(Mirror::of(p), context);
}

}  // namespace fastgemm::strategies
