#include "cuda/gemm/predict/symmetric.h"

#include <algorithm>
#include <limits>

#include "core/triangle.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::predict {
namespace {

constexpr int64_t kRoom = int64_t{2} << 30;  // the most bytes of planes or residues (reused_workspace.cuh)
constexpr double kUnknown = std::numeric_limits<double>::infinity();

struct Prediction {
  const Kernel* row;
  double seconds;
};

bool is_own(const Kernel& k, const GemmProblem& p, const Gpu& gpu) {
  if (k.role != Role::rung || !k.predict || !contains(k.dtypes, p.type)) return false;
  if (p.type == DType::f32 && k.precision != Precision::ieee && k.precision != p.precision) return false;
  return (k.needs != "sm_90a" || gpu.wgmma) && !(k.rejects && k.rejects(p));
}

Prediction fastest(const GemmProblem& p, const Gpu& gpu) {
  Prediction best{nullptr, kUnknown};
  for (const Kernel& k : cuda_gemm_kernels())
    if (is_own(k, p, gpu))
      if (const double s = k.predict(p, gpu); s < best.seconds) best = {&k, s};
  return best;
}

// The largest block on the diagonal of which a row can compute only one triangle. 0: it always computes the
// whole block.
int64_t most_on_diagonal(const Kernel& k, const GemmProblem& p, const Gpu& gpu) {
  if (!gpu.wgmma) return 0;
  if (k.name == "wgmma_specialized" && p.symmetry.parts == 1) return p.m;
  if (k.name == "bf16x6" && p.symmetry.parts == 1) {  // as gemm_of_triangle() in planes/engine.cuh
    const int64_t stages = plans::ceil_div(p.k, plans::kPlaneStage), planes = stages * plans::kPlaneStage * 6;
    if (plans::plane_segments(stages, plans::kBf16x6) > 1) return 0;
    return std::clamp<int64_t>((kRoom / planes - plans::kPlaneM - plans::kWidePlanes) / 2, 0, p.m);
  }
  if (k.name != "crt") return 0;
  // It takes a single panel of C, as ResiduePanels in crt.cu.
  const int64_t row = plans::ceil_div(p.k, 128) * 128 * plans::crt_moduli(p) * (1 + p.symmetry.parts);
  return std::min(p.m, kRoom / row);
}

// The `least` with which diagonal_block() cuts n into 2^i blocks of at most `most`.
int64_t least_for(int64_t n, int64_t most) {
  int64_t blocks = 1;
  while (plans::ceil_div(n, blocks) > most) blocks *= 2;
  return std::max<int64_t>(n / blocks, 1);
}

// The seconds of a row that computes a triangle. wgmma_specialized counts the triangle's tiles. For other
// rows the work is half of the product's, so they are predicted with half as many columns.
double half_seconds(const Kernel& k, const GemmProblem& block, const Gpu& gpu) {
  GemmProblem half = block;
  half.triangle = block.symmetry.parts;
  if (k.name == "wgmma_specialized") return k.predict(half, gpu);
  half.triangle = 0;
  half.n = std::max<int64_t>(block.n / 2, 1);
  constexpr double kAtLeast =
      1.15;  // small triangles lose by whole tiles on the diagonal, and by having few tiles
  return kAtLeast * k.predict(half, gpu);
}

// The seconds to copy one triangle to the other: half of C is read and written, in one launch.
double mirror_seconds(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kLaunch = 3e-6, kOfBandwidth = 0.75;
  const double bytes = double(p.batch) * double(p.m) * double(p.n) * element_size(p.out_type);
  return kLaunch + bytes / (kOfBandwidth * gpu.bandwidth);
}
// How much longer the last wave of tiles takes if a kernel stores both triangles. It was not measured; the
// value is an upper estimate, so that small products are not given to such a kernel.
constexpr double kSecondStore = 3e-6;

bool mirrors(const Kernel* on_diagonal, const GemmProblem& p, int64_t least) {
  if (!on_diagonal || !on_diagonal->mirrors || diagonal_block(p.m, least) != p.m) return false;
  GemmProblem whole = p;
  whole.triangle = p.symmetry.parts;
  return on_diagonal->mirrors(whole);
}

// The plan with blocks of at least `least` on the diagonal.
SymmetricPlan with_blocks(const GemmProblem& p, const Gpu& gpu, const Kernel* on_diagonal, int64_t least) {
  SymmetricPlan plan{on_diagonal, least};
  plan.mirrors = mirrors(on_diagonal, p, least);
  plan.seconds = plan.mirrors ? kSecondStore : mirror_seconds(p, gpu);
  for_each_block(p, least, [&](const GemmProblem& block, bool is_diagonal) {
    plan.seconds +=
        is_diagonal && on_diagonal ? half_seconds(*on_diagonal, block, gpu) : fastest(block, gpu).seconds;
  });
  return plan;
}

}  // namespace

const Kernel* fastest_row(const GemmProblem& p, const Gpu& gpu) { return fastest(p, gpu).row; }

SymmetricPlan plan_symmetric(const GemmProblem& p, const Gpu& gpu) {
  constexpr int64_t kLeastBlock = 1024;
  SymmetricPlan best = with_blocks(p, gpu, nullptr, kLeastBlock);
  for (const Kernel& k : cuda_gemm_kernels()) {
    if (!is_own(k, p, gpu)) continue;
    const int64_t most = most_on_diagonal(k, p, gpu);
    if (most == 0) continue;
    const SymmetricPlan plan = with_blocks(p, gpu, &k, least_for(p.m, most));
    if (plan.seconds < best.seconds) best = plan;
  }
  return best;
}

double symmetric_seconds(const GemmProblem& p, const Gpu& gpu) {
  return p.symmetry.known && p.m > 0 && p.k > 0 ? plan_symmetric(p, gpu).seconds : kUnknown;
}

}  // namespace fastgemm::predict
