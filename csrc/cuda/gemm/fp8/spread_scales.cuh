// Scales as a float32 matrix (groups of k, lines), whose rows the TMA can read. Contract: spread_scales()
// returns the scales in place if they have this layout already, otherwise a copy of them.
#pragma once

#include "core/fp8.h"
#include "cuda/device/launch.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct SpreadScales {
  const float* data;
  int64_t pitch;
};

struct SpreadArguments {
  BlockScales from;  // of lines and k
  float* to;
  int64_t pitch, lines;
  int groups, group;
};

inline __global__ void __launch_bounds__(256)
    spread_scales_kernel(const __grid_constant__ SpreadArguments g) {
  const int64_t line = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (line >= g.lines) return;
  for (int group = int(blockIdx.y); group < g.groups; group += int(gridDim.y))
    g.to[group * g.pitch + line] = fp8::scale_of_code(g.from, line, int64_t{group} * g.group);
}

inline SpreadScales spread_scales(const BlockScales& s, int64_t lines, int64_t k, int group,
                                  Context& context) {
  const bool by_line = s.type == ScaleType::f32 && s.block_rows == 1 && (s.row_stride == 1 || lines == 1);
  const bool by_group = s.block_cols == group || (k <= group && s.block_cols >= k);
  const int64_t pitch = k <= group ? ceil_div(lines, int64_t{4}) * 4 : s.col_stride;
  if (by_line && by_group && pitch >= lines && pitch % 4 == 0 &&
      is_aligned(static_cast<const float*>(s.data), 16))
    return {static_cast<const float*>(s.data), pitch};
  const int64_t own = ceil_div(lines, int64_t{4}) * 4;
  const int groups = int(ceil_div(k, int64_t{group}));
  auto* const to = static_cast<float*>(context.allocate(size_t(groups * own) * sizeof(float)));
  const dim3 grid(unsigned(ceil_div(lines, int64_t{256})), unsigned(std::min(groups, 65535)));
  launch<spread_scales_kernel>("spread_scales", {grid, dim3(256)},
                               context)(SpreadArguments{s, to, own, lines, groups, group});
  return {to, own};
}

}  // namespace fastgemm::FASTGEMM_TARGET
