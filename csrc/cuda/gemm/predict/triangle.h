// For the kernels that can compute one triangle of a symmetric result: the most rows of a result for which
// they do. The other kernels always compute both triangles.
#pragma once

#include <algorithm>

#include "core/problem.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::predict {

inline constexpr int64_t kRoom = int64_t{2} << 30;  // most bytes of planes or residues (reused_workspace.cuh)

inline int64_t most_of_tiles(const GemmProblem& p, const Gpu& gpu) {
  return gpu.wgmma && p.symmetry.parts == 1 ? p.m : 0;
}

// The same condition as in gemm_of_triangle() (planes/engine.cuh).
inline int64_t most_of_planes(const GemmProblem& p, const Gpu& gpu) {
  const int64_t stages = plans::ceil_div(p.k, plans::kPlaneStage), planes = stages * plans::kPlaneStage * 6;
  if (!gpu.wgmma || p.symmetry.parts != 1 || plans::plane_segments(stages, plans::kBf16x6) > 1) return 0;
  return std::clamp<int64_t>((kRoom / planes - plans::kPlaneM - plans::kWidePlanes) / 2, 0, p.m);
}

// crt computes a triangle if C is a single panel (ResiduePanels in crt.cu).
inline int64_t most_of_residues(const GemmProblem& p, const Gpu& gpu) {
  const int64_t row = plans::ceil_div(p.k, 128) * 128 * plans::crt_moduli(p) * (1 + p.symmetry.parts);
  return gpu.wgmma ? std::min(p.m, kRoom / row) : 0;
}

}  // namespace fastgemm::predict
