// What the rows of rows.def reject, and why. A row takes every problem that it does not reject. A level picks
// the row that is predicted to be the fastest (predict/).
#pragma once

#include "core/gpu.h"
#include "core/min_max.h"
#include "core/packed_weight.h"
#include "core/problem.h"
#include "core/triangle.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm {

inline double products(const GemmProblem& p) {
  return double(p.batch) * double(p.m) * double(p.n) * double(p.k);
}

inline int64_t longest(const GemmProblem& p) { return std::max({p.m, p.n, p.k}); }

// The problem that kernels compute. They write rows of C, so a column-major C is computed as its transpose.
inline GemmProblem by_rows(const GemmProblem& p) {
  return p.out.col_stride == 1 || p.n == 1 ? p : p.transposed();
}

// Kernels count tiles and TMA boxes with coordinates of 32 bits.
inline const char* beyond_coordinates(const GemmProblem& p) {
  return longest(p) > int64_t{1} << 30 ? "m, n or k is above 2^30, the most that its 32-bit coordinates allow"
                                       : nullptr;
}

// Kernels of packed weights.
inline const char* beyond_units(const GemmProblem& p) {
  if (!p.packed.units) return "the codes lie in the plain order, and its kernels read units";
  if (p.batch != 1 || (p.out.col_stride != 1 && p.n != 1)) return "it writes one matrix, row by row";
  return beyond_coordinates(p);
}

// Whether a scaled weight may leave the range of fp16 because it is not yet multiplied by the global scale.
inline const char* out_of_half(const GemmProblem& p) {
  const PackedWeight& w = p.packed;
  const bool may = p.type == DType::f16 && w.global && !w.by_rows(p.k) && w.scale != ScaleType::e4m3;
  return may ? "scales without the global one may leave the range of fp16" : nullptr;
}

// For kernels that multiply fragments of numbers. Numbers of nf4 are rounded already, so their scales are
// applied to sums, of at least 64 columns each.
inline const char* rounded_twice(const GemmProblem& p) {
  const PackedWeight& w = p.packed;
  if (w.code == Code::nf4 && (w.zero == Zero::added || (!w.by_rows(p.k) && w.group_k < packed::kColumns / 2)))
    return "numbers of nf4 with added zeros, or in groups of less than 64 columns, would be rounded twice";
  if (w.code == Code::e2m1 && w.zero == Zero::added) return "it adds no zeros to numbers of e2m1";
  if (w.zero == Zero::subtracted && w.code != Code::int4 && w.code != Code::int8)
    return "it subtracts zeros from integer codes only";
  return out_of_half(p);
}

// packed_wgmma: few rows of x.
inline const char* beyond_packed_wgmma(const GemmProblem& p) {
  constexpr int64_t kMostRows = 256;
  if (p.m > kMostRows)
    return "x has more than 256 rows: then converting codes takes longer than reading them";
  if (const char* why = rounded_twice(p)) return why;
  const double stages = double((p.n + 63) / 64) * double((p.k + 127) / 128) * 4;
  if (stages >= 1 << 30) return "it counts the units in 32 bits";
  return reinterpret_cast<uintptr_t>(p.b.data) % 16 != 0 ? "the codes do not begin at a multiple of 16 bytes"
                                                         : beyond_units(p);
}

// packed_mma: a stage has room for 1024 bytes of scales and zeros of a unit, with 8-bit codes 2048.
inline const char* beyond_packed_mma(const GemmProblem& p) {
  const PackedWeight& w = p.packed;
  if (const char* why = beyond_units(p)) return why;
  if (const char* why = rounded_twice(p)) return why;
  const int bytes = packed::unit_scale_bytes(w, p.k) + packed::unit_zero_bytes(w, p.k);
  if (bytes > plans::packed_tail_bytes(bits_of(w.code)))
    return "scales and zeros of 64 rows and 128 columns take more than 1024 bytes (8-bit codes: 2048)";
  const auto tiles = [](int64_t extent, int tile) { return double((extent + tile - 1) / tile); };
  if (tiles(p.m, 32) * tiles(p.n, 64) * tiles(p.k, 64) >= 1 << 30)
    return "the stages of all tiles are 2^30 or more, and it counts them in 32 bits";
  return reinterpret_cast<uintptr_t>(p.b.data) % 16 != 0 ? "the codes do not begin at a multiple of 16 bytes"
                                                         : nullptr;
}

// grouped_wgmma: its blocks keep the tiles of all groups in shared memory, and count them in 32 bits.
// Whether rows of a (by cp.async) and of C (by the TMA) can be accessed in units of 16 bytes.
inline bool gathers_in_units(const GemmProblem& p) {
  const int64_t of_a = 16 / element_size(p.type), of_out = 16 / element_size(p.out_type);
  const auto begins = [](const void* data, int64_t stride, int64_t unit) {
    return stride % unit == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  return p.a.col_stride == 1 && begins(p.a.data, p.a.row_stride, of_a) &&
         begins(p.out.data, p.out.row_stride, of_out) && p.a.row_stride <= INT32_MAX / 2;
}

inline const char* beyond_grouped_wgmma(const GemmProblem& p) {
  if (p.batch < 1 || p.batch > plans::kMostGroups) return "it takes 1 to 512 groups";
  if (p.out.col_stride != 1 && p.n != 1) return "it writes C row by row";
  if (p.k == 0) return "k is 0";
  if (p.gated && p.groups.by != GroupedBy::m) return "it multiplies gates in groups of rows alone";
  if (p.groups.rows && !gathers_in_units(p))
    return "it gathers rows of a in units of 16 bytes, and stores rows that begin at multiples of them";
  const bool is_row = p.c.row_stride == 0 && p.groups.by == GroupedBy::m;
  if (p.beta != 0 && !is_row) return "of what is added to a product, it takes a bias of rows alone";
  const auto tiles = [](int64_t extent, int tile) { return double((extent + tile - 1) / tile); };
  const double grouped =
      p.groups.by == GroupedBy::m ? tiles(p.m, 64) + double(p.batch) : tiles(p.m, 128) * double(p.batch);
  if (grouped * tiles(p.n, 128) >= 1 << 30)
    return "there are 2^30 tiles or more, and it counts them in 32 bits";
  return beyond_coordinates(p);
}

inline const char* beyond_grouped_bf16x6(const GemmProblem& p) {
  if (p.gated) return "it does not multiply a gate by a value";
  if (p.m > (int64_t{1} << 30) / 3) return "three planes of a have more than 2^30 rows";
  return p.alpha != 1.0 ? "alpha is not 1" : beyond_grouped_wgmma(p);
}

// scaled_wgmma: blocks of scales whose sizes are powers of two, along k those of its groups.
inline const char* beyond_scaled_wgmma(const GemmProblem& p) {
  if (p.batch != 1) return "it multiplies one matrix";
  if (p.m == 0 || p.n == 0 || p.k == 0) return "m, n or k is 0";
  if (p.out_type != DType::bf16 && p.out_type != DType::f32) return "its results are bfloat16 or float32";
  const auto takes = [&](const BlockScales& s, int64_t lines) {
    return (s.block_rows == 1 || s.block_rows == 128 || s.block_rows >= lines) &&
           (s.block_cols == 32 || s.block_cols == 128 || s.block_cols >= p.k);
  };
  if (!takes(p.scales_a, p.m) || !takes(p.scales_b.transposed(), p.n))
    return "blocks that share a scale have 1, 128 or all lines, and 32, 128 or all of k";
  return beyond_coordinates(p);
}

// scaled_skinny: few rows, and groups of 128 along k.
inline constexpr int kMostSkinnyRows = 1024;
inline const char* beyond_scaled_skinny(const GemmProblem& p) {
  if (by_rows(p).m > kMostSkinnyRows) return "C has more than 1024 rows";
  // For more than 128 rows, tiles of columns are counted by the second index of the grid.
  if (by_rows(p).m > 128 && by_rows(p).n > int64_t{65535} * 128) return "C has more than 8,388,480 columns";
  if (p.k < 256) return "k is less than 256";
  const BlockScales &a = by_rows(p).scales_a, b = by_rows(p).scales_b.transposed();
  const bool of_lines = a.block_cols >= p.k && b.block_cols >= p.k;
  const bool of_blocks = b.type == ScaleType::f32 && b.block_rows >= std::min<int64_t>(by_rows(p).n, 128);
  if (!of_lines && !of_blocks)
    return "scales differ along k, and those of b are not of blocks of 128 columns";
  if (std::min(a.block_cols, b.block_cols) < 128)
    return "blocks that share a scale are shorter than 128 along k";
  return beyond_scaled_wgmma(p);
}

// grouped_scaled_wgmma: scales of rows of a and of columns of b.
inline const char* beyond_grouped_scaled_wgmma(const GemmProblem& p) {
  if (p.out_type != DType::bf16 && p.out_type != DType::f32) return "its results are bfloat16 or float32";
  const auto of_lines = [&](const BlockScales& s, int64_t lines) {
    return s.type == ScaleType::f32 && s.block_cols >= p.k && (s.block_rows == 1 || s.block_rows >= lines);
  };
  if (!of_lines(p.scales_a, p.m) || !of_lines(p.scales_b.transposed(), p.n))
    return "its scales are float32, each of a row of a or of a column of b";
  return p.beta != 0 ? "it adds nothing to a product" : beyond_grouped_wgmma(p);
}

inline const char* beyond_grouped_mma(const GemmProblem& p) {
  if (p.out.col_stride != 1 && p.n != 1) return "it writes C row by row";
  if (p.groups.by == GroupedBy::k && p.type != DType::f16 && p.type != DType::bf16)
    return "it multiplies groups of k in 16-bit types alone";
  return p.batch > 65535 ? "it takes up to 65,535 groups" : beyond_coordinates(p);
}

inline const char* beyond_small_tile(const GemmProblem& p) {
  constexpr int64_t kMostColumns = 64 * 65535;  // gridDim.y
  if (by_rows(p).n > kMostColumns)
    return "C has more than 4,194,240 columns, the most that its grid of tiles covers";
  return beyond_coordinates(p);
}

inline const char* beyond_one_wave(const GemmProblem& p) {
  constexpr int64_t kMostColumns = 32 * int64_t{65535};  // gridDim.y of the narrowest tiles
  return std::max(p.m, p.n) > kMostColumns
             ? "C's longer side is above 2,097,120, the most that its grid of tiles covers"
             : beyond_coordinates(p);
}

inline const char* beyond_skinny(const GemmProblem& p) {
  const auto tiles_of = [](int64_t extent) { return double((extent + 63) / 64); };
  const double batch = double(std::min<int64_t>(p.batch, 65535));
  if (tiles_of(p.m) * tiles_of(p.n) * tiles_of(p.k) * batch >= 1 << 30)
    return "the stages of all tiles are 2^30 or more, and it counts them in 32 bits";
  return beyond_coordinates(p);
}

inline const char* beyond_narrow_parts(const GemmProblem& p) {
  constexpr int64_t kPart = int64_t{1} << 30, kMostBlocksZ = 65535;
  return std::min(p.batch, kMostBlocksZ) * ((p.k + kPart - 1) / kPart) > kMostBlocksZ
             ? "k is above 2^30, and its grid has too few blocks for the parts of k of all matrices"
             : nullptr;
}

inline const char* beyond_planes(const GemmProblem& p) {
  return longest(p) > int64_t{1} << 28 ? "m, n or k is above 2^28, the most that its planes allow" : nullptr;
}

// From this k on the errors of sums of planes are smaller than those of float32 sums
// (parts/planes/scheme.cuh).
inline constexpr int64_t kLeastBf16x6 = 80;
inline const char* beyond_bf16x6(const GemmProblem& p) {
  if (p.k < kLeastBf16x6 && products(p) > 0)  // no kernel multiplies where k = 0 or the result is empty
    return "k is below 80: for such short sums, products of planes are less accurate than float32 sums";
  return beyond_planes(p);
}

// For float32, crt computes some tiles by bf16x6, so it has the limits of bf16x6.
inline const char* beyond_crt(const GemmProblem& p) {
  return p.type == DType::f32 ? beyond_bf16x6(p) : beyond_coordinates(p);
}

// The planes of one tile for all of k take 4 * (128 + 192) bytes for each value of k.
inline const char* beyond_int8x10(const GemmProblem& p) {
  constexpr int64_t kStage = 32, kMostK = (int64_t{2} << 30) / (kStage * 4 * (128 + 192)) * kStage;
  if (p.k > kMostK) return "k is above 1,677,696: the planes of one tile would take more than 2 GiB";
  return beyond_planes(p);
}

// The functions below say for which products a kernel applies the epilogue itself.
//
// skinny and small_tile: products of 16-bit operands that lie along k, like the operands of a linear layer.
inline bool fuses_along_k(const GemmProblem& p) {
  const bool half = p.type == DType::f16 || p.type == DType::bf16,
             by_rows = p.out.col_stride == 1 || p.n == 1;
  return half && by_rows && p.k > 1 && p.a.col_stride == 1 && p.b.row_stride == 1;
}

// split_k: products of 16-bit operands. Its second launch applies the epilogue, and does not depend on
// layouts.
inline bool fuses_half(const GemmProblem& p) { return p.type == DType::f16 || p.type == DType::bf16; }

// packed_tiles: many rows of x. The scales and zeros of half a unit have a place of 512 bytes in a stage.
inline const char* beyond_packed_tiles(const GemmProblem& p) {
  const PackedWeight& w = p.packed;
  if (const char* why = beyond_units(p)) return why;
  if (p.k < 256) return "k is less than 256, the least that blocks share";
  if (w.code == Code::nf4) return "it has no table of nf4's numbers";
  if (w.by_rows(p.k)) return w.zero == Zero::none ? nullptr : "the zeros serve whole rows";
  if (const char* why = out_of_half(p)) return why;
  const ScaleType own = p.type == DType::f16 ? ScaleType::f16 : ScaleType::bf16;
  const bool exact = (w.scale == own && w.group_n == 1) || w.scale == ScaleType::e4m3 ||
                     (w.scale == ScaleType::e8m0 && own == ScaleType::bf16);
  if (!exact) return "it multiplies by scales in the type of x, and these are not exact in it";
  const bool integers = w.code == Code::int4 || w.code == Code::int8;
  if (w.zero == Zero::added || (w.zero == Zero::subtracted && !integers))
    return "it subtracts zeros from integer codes only";
  const bool halves = w.group_k < packed::kColumns;
  if (halves && w.group_n != 1) return "it takes groups of several rows only with 128 columns and more";
  const int scales = packed::unit_scale_bytes(w, p.k), zeros = packed::unit_zero_bytes(w, p.k);
  return (scales + 127) / 128 * 128 + zeros > (halves ? 1024 : 512)
             ? "its stages have no room for so many scales"
             : nullptr;
}

// packed_wgmma: its second launch does.
inline bool fuses_packed(const GemmProblem& p) { return fuses_half(p) && p.alpha == 1.0; }

// narrow, direct and bf16x6_fused: the same as skinny, and float32.
inline bool fuses_lines(const GemmProblem& p) {
  return fuses_along_k(p) || (p.type == DType::f32 && p.k > 1 && p.a.col_stride == 1 && p.b.row_stride == 1);
}

// bf16x6: operands of any layout, because they are cut into planes first.
inline bool fuses_planes(const GemmProblem& p) {
  return !p.invariant && p.triangle == 0 && (p.out.col_stride == 1 || p.n == 1);
}

// crt: products of float32 whose k is not computed in parts.
inline bool fuses_joined(const GemmProblem& p) {
  return p.type == DType::f32 && p.k <= plans::kFloat32CrtTerms && p.triangle == 0 &&
         (p.out.col_stride == 1 || p.n == 1);
}

// mma_sync: the same as skinny, and tf32.
inline bool fuses_by_warps(const GemmProblem& p) {
  const bool tf32 = p.type == DType::f32 && p.k > 1 && p.a.col_stride == 1 && p.b.row_stride == 1;
  return fuses_along_k(p) || (tf32 && (p.out.col_stride == 1 || p.n == 1));
}

// wgmma_specialized and wgmma_fused: the bias is a row.
inline bool fuses_in_fragments(const GemmProblem& p) { return p.alpha == 1.0 && fuses_by_warps(p); }

// wgmma_specialized: turns a c that adds the same row to every row of C into a bias, which the TMA need not
// read as a whole matrix. Results are rounded as before: 1 * x + 1 * c.
inline GemmProblem with_row_as_bias(const GemmProblem& p) {
  const bool is_row = p.beta == 1 && p.c.row_stride == 0 && p.c.batch_stride == 0 && p.c.col_stride == 1;
  if (!is_row || p.epilogue.asked() || p.triangle != 0 || !fuses_in_fragments(p)) return p;
  GemmProblem q = p;
  q.epilogue = {.has_bias = true, .bias = p.c.data, .bias_col_stride = 1};
  q.beta = 0, q.c = {};
  return fuses_in_fragments(q) ? q : p;
}

// Whether wgmma_specialized stores both triangles of a symmetric result: it does for 16-bit types that the
// TMA can write (boxes.cuh).
inline bool mirrors_in_boxes(const GemmProblem& p) {
  const bool half = (p.type == DType::f16 || p.type == DType::bf16) && p.out_type == p.type;
  const auto in_units = [](int64_t elements) { return elements % 8 == 0; };
  return half && p.triangle == 1 && p.out.col_stride == 1 &&
         reinterpret_cast<uintptr_t>(p.out.data) % 16 == 0 && in_units(p.n) && in_units(p.out.row_stride) &&
         p.out.row_stride >= p.n &&
         (p.batch == 1 || (in_units(p.out.batch_stride) && p.out.batch_stride > 0));
}

// The functions below are for kernels that can compute one triangle of a symmetric result. They return the
// most rows of a result for which a kernel does so. The other kernels always compute both triangles.
// kMostScratch: the most bytes of planes or residues (reused_workspace.cuh).
inline constexpr int64_t kMostScratch = int64_t{2} << 30;

inline int64_t most_of_tiles(const GemmProblem& p, const Gpu& gpu) {
  return gpu.wgmma && p.symmetry.parts == 1 ? p.m : 0;
}

// The same condition as in gemm_of_triangle() (planes/engine.cuh).
inline int64_t most_of_planes(const GemmProblem& p, const Gpu& gpu) {
  const int64_t stages = plans::ceil_div(p.k, plans::kPlaneStage), planes = stages * plans::kPlaneStage * 6;
  if (!gpu.wgmma || p.symmetry.parts != 1 || plans::plane_segments(stages, plans::kBf16x6) > 1) return 0;
  return std::clamp<int64_t>((kMostScratch / planes - plans::kPlaneM - plans::kWidePlanes) / 2, 0, p.m);
}

// crt computes a triangle if C is a single panel (ResiduePanels in crt.cu).
inline int64_t most_of_residues(const GemmProblem& p, const Gpu& gpu) {
  const int64_t row = plans::ceil_div(p.k, 128) * 128 * plans::crt_moduli(p) * (1 + p.symmetry.parts);
  return gpu.wgmma ? std::min(p.m, kMostScratch / row) : 0;
}

}  // namespace fastgemm
