#include "core/part_scales.h"

#include <algorithm>

#include "core/fp8.h"

namespace fastgemm {
namespace {

// s: of a, or of b transposed
BlockScales of_lines(const BlockScales& s, int64_t lines, const GemmProblem& p, Context& ctx) {
  constexpr int64_t kTask = 1 << 14;  // numbers: about ten microseconds
  // A cache line more, so that the scales of one line, part after part, do not share a set of the L1 cache.
  const int64_t part = part_of_k(p), parts = packed::blocks(p.k, part), pitch = (lines + 31) / 32 * 32 + 16;
  auto* const to = static_cast<float*>(ctx.allocate(size_t(parts * pitch) * sizeof(float)));
  const int64_t blocks = packed::blocks(lines, s.block_rows);
  const int64_t step = std::clamp<int64_t>(kTask / (parts * s.block_rows), 1, blocks);
  ctx.parallel(packed::blocks(blocks, step), [&](int64_t task) {
    for (int64_t block = task * step; block < std::min(blocks, (task + 1) * step); ++block) {
      const int64_t begin = block * s.block_rows, end = std::min(lines, begin + s.block_rows);
      for (int64_t i = 0; i < parts; ++i) {
        float* const scales = to + i * pitch;
        std::fill(scales + begin, scales + end, fp8::scale_of_code(s, begin, i * part));
        if (end == lines) std::fill(scales + end, scales + pitch, 0.0f);
      }
    }
  });
  return {ScaleType::f32, to, 1, pitch, 1, part};
}

}  // namespace

bool cpu::suits_parts(const GemmProblem& p) {
  const int64_t part = part_of_k(p), larger = std::max(p.scales_a.block_cols, p.scales_b.block_rows);
  const bool all = part >= p.k;
  return p.batch == 1 && (all || part == 32 || part == 64 || part == 128) &&
         (larger >= p.k || larger % part == 0);
}

BlockScales cpu::row_scales_of_parts(const GemmProblem& p, Context& ctx) {
  return of_lines(p.scales_a, p.m, p, ctx);
}
BlockScales cpu::column_scales_of_parts(const GemmProblem& p, Context& ctx) {
  return of_lines(p.scales_b.transposed(), p.n, p, ctx);
}

}  // namespace fastgemm
