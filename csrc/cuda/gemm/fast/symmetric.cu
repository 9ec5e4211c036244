// Level 6 for results that equal their transposes. The lower triangle is computed and copied to the upper
// one, which takes half the work of a product. This is not a kernel of its own but a schedule of other
// kernels (predict/symmetric.h):
//
//   - on Hopper wgmma_specialized, bf16x6 and crt have kernels that compute only the tiles of a triangle
//     (parts/schedules/lower_triangle.cuh), in one launch;
//   - for everything else the triangle is cut into blocks, which any row can compute (core/triangle.h).
//
// wgmma_specialized stores its tiles of 16-bit results twice, the second time transposed
// (parts/stores/mirrored_store.cuh). After the other kernels a last pass copies one triangle to the other
// (parts/mirror.cu). In both cases the result is exactly symmetric.
#include "core/gpu.h"
#include "core/mirror.h"
#include "core/triangle.h"
#include "cuda/gemm/launchers.h"
#include "cuda/gemm/parts/launch_row.h"
#include "cuda/gemm/parts/reused_workspace.cuh"
#include "cuda/gemm/predict/symmetric.h"

namespace fastgemm::FASTGEMM_TARGET {

void gemm_symmetric(const GemmProblem& p, Context& context) {
  if (p.batch * p.m == 0) return;
  if (p.k == 0) {  // the result is beta * c
    gemm_naive(p, context);
    return mirror(Mirror::of(p), context);
  }
  const Gpu& gpu = current_gpu();
  const predict::SymmetricPlan plan = predict::plan_symmetric(p, gpu);
  ReusedWorkspace workspace(context, p.c.data != p.out.data);
  for_each_block(p, plan.least, [&](GemmProblem block, bool is_diagonal) {
    workspace.begin_again();
    const Kernel* row = is_diagonal ? plan.on_diagonal : nullptr;
    if (row) block.triangle = p.symmetry.parts;
    launch_row(row ? row : predict::fastest_row(block, gpu), block, workspace);
  });
  if (!plan.mirrors) mirror(Mirror::of(p), context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
