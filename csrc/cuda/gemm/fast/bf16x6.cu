// Level 6: float32 products at float32 accuracy from tensor cores. Six products of bf16 planes are summed in
// an order that makes the sums more accurate than float32 sums (parts/planes/scheme.cuh). Infinities, NaN and
// overflow give the results of IEEE arithmetic (parts/planes/repair.cuh). docs/precision.md has its errors,
// docs/weak_spots.md its speed.
//
// The pre-pass moves n^2 elements for n^3 multiply-adds, so small products gain least.
#include "cuda/gemm/fast/decode.cuh"
#include "cuda/gemm/parts/planes/engine.cuh"
#include "cuda/gemm/parts/residues/fallback.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// The same for the tiles that `crt` does not compute itself.
struct Bf16x6Rest : planes::Bf16x6 {
  using Tiles = residues::FallbackTiles;
};

}  // namespace

void residues::multiply_fallback(const Gemm<float>& g, const Selection& selection, const Epilogue& epilogue,
                                 Context& context) {
  using namespace planes;
  const auto multiply = [&]<class S>() {
    static_assert(kTileM % S::kM == 0 && kTileN % S::kN == 0);
    in_batch_parts(g, 1, Panels::bytes<S>(g), context,
                   [&](const Gemm<float>& all, int count, ReusedWorkspace& workspace) {
                     launch_panels<S>("bf16x6_rest", all, count, FallbackTiles{selection},
                                      EpilogueOf<typename S::Scheme>(epilogue), workspace);
                   });
  };
  const auto run = [&]<class Scheme>() {
    cuda::has_wgmma() ? multiply.template operator()<Shape<Scheme, plans::kNarrowPlanes>>()
                      : multiply.template operator()<WarpShape<Scheme>>();
  };
  epilogue.asked() ? run.template operator()<Fusing<Bf16x6Rest>>() : run.template operator()<Bf16x6Rest>();
}

void gemm_bf16x6(const GemmProblem& problem, Context& context) {
  const char* const name = "bf16x6";
  if (problem.invariant) {
    const int64_t rows = problem.out.col_stride == 1 || problem.n == 1 ? problem.m : problem.n;  // by_rows()
    if (!cuda::has_wgmma() || !plans::takes_plane_decode(rows, problem.k))
      return planes::gemm_by_planes<planes::Bf16x6Invariant>(name, problem, context);
    return run_gemm<float>(problem, context,
                           [&](const auto& g, int batch) { decode_by_planes(g, batch, context); });
  }
  if (problem.epilogue.asked()) return planes::gemm_by_planes<Fusing<planes::Bf16x6>>(name, problem, context);
  if (problem.triangle != 1) return planes::gemm_by_planes<planes::Bf16x6>(name, problem, context);
  run_gemm<float>(problem, context, [&](const auto& g, int batch) {
    if (!planes::gemm_of_triangle<planes::Bf16x6>(name, g, batch, context))
      planes::gemm_in_parts<planes::Bf16x6>(name, g, batch, {}, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
