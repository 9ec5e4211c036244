// What the rows of rows.def reject, with the reason, and which problems they suit. A level picks the first
// row that suits a problem; called by name, a row takes every problem that it does not reject. A row suits
// where it was measured to be faster than the others, on an H200; tests/core/test_suits.py holds the rules
// against the measured points.
#pragma once

#include <algorithm>

#include "core/problem.h"
#include "core/tuning.h"
#include "cuda/available.h"

namespace fastgemm {

inline int64_t tiles(const GemmProblem& p, int64_t size) {
  return p.batch * ((p.m + size - 1) / size) * ((p.n + size - 1) / size);
}
inline int64_t stages(const GemmProblem& p) {  // 128 bytes of k each
  return (p.k * element_size(p.type) + 127) / 128;
}

inline double products(const GemmProblem& p) {
  return double(p.batch) * double(p.m) * double(p.n) * double(p.k);
}

inline int64_t longest(const GemmProblem& p) { return std::max({p.m, p.n, p.k}); }

// The problem as kernels compute it: they write rows of C, and compute a C that lies by columns as its
// transpose.
inline GemmProblem by_rows(const GemmProblem& p) {
  return p.out.col_stride == 1 || p.n == 1 ? p : p.transposed();
}

// Kernels count tiles and TMA boxes with coordinates of 32 bits.
inline const char* beyond_coordinates(const GemmProblem& p) {
  return longest(p) > int64_t{1} << 30 ? "m, n or k is above 2^30, the largest of its 32-bit coordinates"
                                       : nullptr;
}

inline const char* beyond_small_tile(const GemmProblem& p) {
  constexpr int64_t kMostColumns = 64 * 65535;  // gridDim.y
  if (by_rows(p).n > kMostColumns) return "C has more columns than its grid has tiles for (4,194,240)";
  return beyond_coordinates(p);
}

inline const char* beyond_skinny(const GemmProblem& p) {
  const auto tiles_of = [](int64_t extent) { return double((extent + 63) / 64); };
  const double batch = double(std::min<int64_t>(p.batch, 65535));
  if (tiles_of(p.m) * tiles_of(p.n) * tiles_of(p.k) * batch >= 1 << 30)
    return "all tiles have more stages together than 2^30, which it counts in 32 bits";
  return beyond_coordinates(p);
}

inline const char* beyond_narrow_parts(const GemmProblem& p) {
  constexpr int64_t kPart = int64_t{1} << 30, kMostBlocksZ = 65535;
  return std::min(p.batch, kMostBlocksZ) * ((p.k + kPart - 1) / kPart) > kMostBlocksZ
             ? "k is above 2^30, for more matrices than its grid has room for parts of k"
             : nullptr;
}

inline const char* beyond_planes(const GemmProblem& p) {
  return longest(p) > int64_t{1} << 28 ? "m, n or k is above 2^28, the most that its planes are made for"
                                       : nullptr;
}

// From this k on sums of planes err less than float32 sums (parts/planes/scheme.cuh).
inline constexpr int64_t kLeastBf16x6 = 80;
inline const char* beyond_bf16x6(const GemmProblem& p) {
  if (p.k < kLeastBf16x6 && products(p) > 0)  // no kernel multiplies where k = 0 or the result is empty
    return "k is below 80: such short sums of products of planes would err more than float32 sums";
  return beyond_planes(p);
}

// The planes of one tile for all of k: 4 of (128 + 192) bytes for each value of k.
inline const char* beyond_int8x10(const GemmProblem& p) {
  constexpr int64_t kStage = 32, kMostK = (int64_t{2} << 30) / (kStage * 4 * (128 + 192)) * kStage;
  if (p.k > kMostK) return "k is above 1,677,696: the planes of one tile would take more than 2 GiB";
  return beyond_planes(p);
}

// Larger products than about 600 x 600 x 600 (on 132 multiprocessors), but for those so skinny that most
// of a large tile would lie outside C.
inline bool is_large_product(const GemmProblem& p) {
  constexpr int64_t kSkinny = 64;
  constexpr double kProducts = 1.6e6;  // a multiprocessor
  return products(p) >= kProducts * cuda::gpu_here().multiprocessors && std::min(p.m, p.n) > kSkinny;
}

// A block adds the partial sums of a tile's other blocks one after the other, so a tile should not have
// many; and a C that fills these large tiles badly is left to the 128 x 128 tiles of cp_async.
inline bool fills_warp_specialized(const GemmProblem& problem) {
  const GemmProblem p = by_rows(problem);
  const int64_t tile_m = p.type == DType::f64 ? 64 : 128, tile_n = 256;
  const int64_t tiles = p.batch * ((p.m + tile_m - 1) / tile_m) * ((p.n + tile_n - 1) / tile_n);
  return is_large_product(p) && tiles * 6 >= cuda::gpu_here().multiprocessors &&
         double(tiles * tile_m * tile_n) <= 1.4 * double(p.m) * double(p.n) * double(p.batch);
}

// Whether other kernels can read operands of at most 16 bits in place: rows are whole multiples of 16
// bytes, and bytes lie along k.
inline bool reads_in_place(const GemmProblem& p) {
  const bool along_k = p.a.col_stride == 1 && p.b.row_stride == 1;
  return alignment_of(p).inputs && (p.type != DType::i8 || along_k);
}

// float32 sums at float32's accuracy that bf16x6 rejects.
inline bool is_short_ieee(const GemmProblem& p) {
  return p.type == DType::f32 && p.precision == Precision::ieee && p.k < kLeastBf16x6;
}

inline bool is_batch_of_small(const GemmProblem& p) {
  return p.batch >= 16 && std::max(p.m, p.n) <= 64 && p.k <= 128;
}

// Suits where other kernels have few tiles, or would have to copy operands. float64: a wave of dmma's
// tiles takes as long as kTilesOfAWave of these, and dmma does not split k. float32 is multiplied in fp64,
// which must be fast. Smaller types: not where C is large, which wgmma_specialized stores faster.
inline bool suits_direct(const GemmProblem& p) {
  constexpr int64_t kMultiprocessors = 132, kTilesOfAWave = 1000, kMostElements = 16 << 20;
  const int64_t own = tiles(p, 32), work = own * p.k;
  switch (p.type) {
    case DType::f64:
      return work <= 768 << 10 ||
             own <= (tiles(p, 128) + kMultiprocessors - 1) / kMultiprocessors * kTilesOfAWave;
    case DType::f32:  // also what bf16x6 rejects
      if (is_short_ieee(p)) return has_fast_float64(cuda::gpu_here().capability) && !is_batch_of_small(p);
      return has_fast_float64(cuda::gpu_here().capability) &&
             (p.batch == 1 ? work <= 384 << 10 : work <= 64 << 10 && own < 1024);
    case DType::f16:
    case DType::bf16:
    case DType::i8:
      return (p.k < 8 || !reads_in_place(p)) && work <= (p.batch == 1 ? 384 : 64) << 10 &&
             p.batch * p.m * p.n <= kMostElements;
    default:
      return false;
  }
}

// For larger products wgmma_specialized is faster.
inline bool suits_small_tile(const GemmProblem& p) {
  return reads_in_place(p) && tiles(p, 64) * stages(p) <= 1024;
}

// Suits where the time is that of reading one operand: not where that operand is small, C is as large, or
// few rows of it have a long k.
inline bool suits_skinny(const GemmProblem& p) {
  const int64_t short_side = std::min(p.m, p.n), long_side = std::max(p.m, p.n);
  return short_side <= 64 && long_side >= 256 && p.k >= 16 * short_side &&
         double(p.batch) * double(long_side) * double(p.k) * element_size(p.type) >= 4 << 20;
}

// Suits where the launch and the first cache misses take most of the time, so that plain multiply-adds are
// enough: for few products; and with up to 4 rows on the short side for any number, unless a small type
// gains by tensor cores. int32 has no other kernel of level 6 than int8x10, which first cuts its operands
// into planes: for few products of int32 the short side does not count.
inline bool suits_narrow(const GemmProblem& p) {
  const int64_t short_side = std::min(p.m, p.n);
  if (beyond_coordinates(p) || beyond_planes(p)) return true;  // all other rows may reject it
  if (p.type == DType::i32 && beyond_int8x10(p)) return true;
  if (p.batch >= 16) return false;
  if (p.type == DType::i32) return short_side <= 16 || products(p) <= 32 << 20;
  if (short_side <= 4) return element_size(p.type) >= 4 || products(p) <= 16 << 20;
  return short_side <= 32 && products(p) <= 2 << 20;
}

// Suits where k has so many parts that in stream-K one block would add partial sums for a long time, and
// is so long that writing and reading the partial sums hardly counts.
inline bool suits_split_k(const GemmProblem& p) {
  return tiles(p, 128) <= 64 && stages(p) >= std::max<int64_t>(2 * tiles(p, 128), 40);
}

// Suits where bf16x6's pre-pass would take longer than it saves: C is skinny, or small against k, or the
// matrices are small.
inline bool suits_fused(const GemmProblem& p) {
  const int64_t short_side = std::min(p.m, p.n), long_side = std::max(p.m, p.n);
  return short_side <= 128 || long_side <= 256 || (long_side <= 512 && p.k >= 4 * long_side);
}

// The rule for three products of planes: where their pre-pass does not pay, bf16x6_fused, no less precise,
// is taken.
inline bool suits_three_planes(const GemmProblem& p) { return !suits_fused(p); }

// Suits batches of matrices so small that tiles for tensor cores would be mostly empty; float32 comes here
// where `direct` does not suit, and with what bf16x6 rejects where fp64 is slow.
inline bool suits_batched(const GemmProblem& p) {
  return is_batch_of_small(p) || (is_short_ieee(p) && !has_fast_float64(cuda::gpu_here().capability));
}

}  // namespace fastgemm
