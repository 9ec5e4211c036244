// Products whose result is symmetric, with half the work. The lower triangle is computed in blocks
// (core/triangle.h), each by the row that is predicted to be the fastest. Then it is copied to the upper
// triangle.
#include "cpu/gemm/symmetric.h"

#include <limits>

#include "core/mirror.h"
#include "core/reused_workspace.h"
#include "core/select.h"
#include "core/triangle.h"

namespace fastgemm {
namespace {

// The least size of a block on the diagonal, which is computed as a whole. Smaller blocks waste less work,
// but larger ones are computed faster. With AVX-512, a float32 product of 1024 takes a seventh less time with
// 128 than with 256.
constexpr int64_t kLeastBlock = 128;

struct Pick {
  const Kernel* kernel;
  double seconds;
};

// The row of this library that is predicted to be the fastest. If none is predicted, the last row, which
// every CPU can run.
Pick fastest(const GemmProblem& p, const Cpu& cpu, int threads) {
  Pick best{nullptr, std::numeric_limits<double>::infinity()};
  for (const Kernel& k : cpu_gemm_kernels()) {
    if (k.role != Role::rung || k.why_unavailable() || !contains(k.dtypes, p.type)) continue;
    const double seconds =
        k.predict_on_cpu ? k.predict_on_cpu(p, cpu, threads) : std::numeric_limits<double>::infinity();
    if (!best.kernel || seconds <= best.seconds) best = {&k, seconds};
  }
  return best;
}

}  // namespace

void gemm_symmetric(const GemmProblem& p, Context& context) {
  if (p.batch * p.m == 0) return;
  if (p.k == 0) {  // the result is beta * c
    cpu_gemm_kernels().front().gemm(p, context);
    return cpu::mirror(Mirror::of(p), context);
  }
  ReusedWorkspace workspace(context, p.c.data != p.out.data);
  for_each_block(p, kLeastBlock, [&](const GemmProblem& block, bool) {
    if (workspace.stopped()) return;
    workspace.begin_again();
    fastest(block, current_cpu(), context.threads()).kernel->gemm(block, workspace);
  });
  cpu::mirror(Mirror::of(p), context);
}

double symmetric_seconds(const GemmProblem& p, const Cpu& cpu, int threads) {
  if (!p.symmetry.known) return std::numeric_limits<double>::infinity();
  double seconds = 0;
  for_each_block(p, kLeastBlock,
                 [&](const GemmProblem& block, bool) { seconds += fastest(block, cpu, threads).seconds; });
  // Half of the result is read and the other half written. Every core copies faster than this rate.
  constexpr double kBytesASecond = 4e9;
  const double bytes = double(p.batch) * double(p.m) * double(p.n) * element_size(p.out_type);
  return seconds + bytes / kBytesASecond / threads;
}

}  // namespace fastgemm
