// What the rows of rows.def reject, with the reason, and which problems they suit. A level picks the first
// row that suits; by name a row takes every problem that it does not reject. Rows suit where they were
// measured to be faster than the others, on an H200 (132 multiprocessors); tests/core/test_suits.py holds the
// rules against the measured points.
#pragma once

#include <algorithm>

#include "core/problem.h"
#include "core/tuning.h"
#include "cuda/available.h"

namespace fastgemm {

inline int64_t tiles(const GemmProblem& p, int64_t size) {
  return p.batch * ((p.m + size - 1) / size) * ((p.n + size - 1) / size);
}
inline int64_t stages(const GemmProblem& p) {  // of 128 bytes of k
  return (p.k * element_size(p.type) + 127) / 128;
}

inline double products(const GemmProblem& p) {
  return double(p.batch) * double(p.m) * double(p.n) * double(p.k);
}

inline int64_t longest(const GemmProblem& p) { return std::max({p.m, p.n, p.k}); }

// The problem as kernels compute it: they write rows of C, and read a C in columns as its transpose.
inline GemmProblem by_rows(const GemmProblem& p) {
  return p.out.col_stride == 1 || p.n == 1 ? p : p.transposed();
}

// Coordinates of tiles and boxes have 32 bits.
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

// Sums of planes err less than float32 sums only from there on (scheme.cuh).
inline constexpr int64_t kLeastBf16x6 = 80;
inline const char* beyond_bf16x6(const GemmProblem& p) {
  if (p.k < kLeastBf16x6)
    return "k is below 80: such short sums of products of planes would err more than float32 sums";
  return beyond_planes(p);
}

// The planes of one tile in all of k: 4 of (128 + 192) bytes for each.
inline const char* beyond_int8x10(const GemmProblem& p) {
  constexpr int64_t kMostK = (int64_t{2} << 30) / (4 * (128 + 192));
  if (p.k > kMostK) return "k is above 1,677,721: the planes of one tile would take more than 2 GiB";
  return beyond_planes(p);
}

// Up to about 600 x 600 x 600 on 132 multiprocessors, and where most of a large tile would lie outside C.
inline bool is_no_small_product(const GemmProblem& p) {
  constexpr int64_t kNarrow = 64;
  constexpr double kProducts = 1.6e6;  // a multiprocessor
  return products(p) >= kProducts * cuda::multiprocessors_here() && std::min(p.m, p.n) > kNarrow;
}

// A block adds the sums of a tile's other blocks one after the other, so a tile should not have many; and a C
// that fills these large tiles badly leaves more to the 128 x 128 tiles of cp_async.
inline bool fills_warp_specialized(const GemmProblem& problem) {
  const GemmProblem p = by_rows(problem);
  const int64_t tile_m = p.type == DType::f64 ? 64 : 128, tile_n = 256;
  const int64_t tiles = p.batch * ((p.m + tile_m - 1) / tile_m) * ((p.n + tile_n - 1) / tile_n);
  return is_no_small_product(p) && tiles * 6 >= cuda::multiprocessors_here() &&
         double(tiles * tile_m * tile_n) <= 1.4 * double(p.m) * double(p.n) * double(p.batch);
}

// Whether other kernels can read operands of at most 16 bits where they are: rows of whole 16 bytes, and of
// bytes along k.
inline bool reads_in_place(const GemmProblem& p) {
  const bool along_k = p.a.col_stride == 1 && p.b.row_stride == 1;
  return alignment_of(p).inputs && (p.type != DType::i8 || along_k);
}

// Where other kernels have few tiles, or would have to copy operands. float64: one tile of dmma on each
// multiprocessor takes as long as 1000 of these, and dmma does not split k. float32 is multiplied in fp64,
// which must be fast. Smaller types: not where C is large, which wgmma_specialized stores faster.
inline bool suits_direct(const GemmProblem& p) {
  constexpr int64_t kMultiprocessors = 132, kTilesOfAWave = 1000, kMostElements = 16 << 20;
  const int64_t own = tiles(p, 32), work = own * p.k;
  switch (p.type) {
    case DType::f64:
      return work <= 768 << 10 ||
             own <= (tiles(p, 128) + kMultiprocessors - 1) / kMultiprocessors * kTilesOfAWave;
    case DType::f32:  // also what bf16x6 rejects
      if (p.k < kLeastBf16x6) return cuda::has_fast_float64();
      return cuda::has_fast_float64() && (p.batch == 1 ? work <= 384 << 10 : work <= 64 << 10 && own < 1024);
    case DType::f16:
    case DType::bf16:
    case DType::i8:
      return (p.k < 8 || !reads_in_place(p)) && work <= (p.batch == 1 ? 384 : 64) << 10 &&
             p.batch * p.m * p.n <= kMostElements;
    default:
      return false;
  }
}

// At four times as much wgmma_specialized is faster.
inline bool suits_small_tile(const GemmProblem& p) {
  return reads_in_place(p) && tiles(p, 64) * stages(p) <= 1024;
}

// Where reading one operand takes longer than all else: not where it is small (4 MB take 1 us), C is as
// large, or few rows of it have a long k.
inline bool suits_skinny(const GemmProblem& p) {
  const int64_t narrow = std::min(p.m, p.n), side = std::max(p.m, p.n);
  return narrow <= 64 && side >= 256 && p.k >= 16 * narrow &&
         double(p.batch) * double(side) * double(p.k) * element_size(p.type) >= 4 << 20;
}

// Where the launch and the first misses decide, so that plain multiply-adds are enough: few products; with up
// to 4 rows of the narrow side any number, but that small types gain by tensor cores where there are many.
// (float32 1 x 8192 x 8192: 77 us, bf16x6_fused 85.) int32 has nothing but int8x10, which first cuts its
// operands into planes: there the side does not count where there are few products.
inline bool suits_narrow(const GemmProblem& p) {
  const int64_t narrow = std::min(p.m, p.n);
  if (beyond_coordinates(p) || beyond_planes(p)) return true;  // as all others may
  if (p.type == DType::i32 && beyond_int8x10(p)) return true;
  if (p.batch >= 16) return false;
  if (p.type == DType::i32) return narrow <= 16 || products(p) <= 32 << 20;
  if (narrow <= 4) return element_size(p.type) >= 4 || products(p) <= 16 << 20;
  return narrow <= 32 && products(p) <= 2 << 20;
}

// So many ways to cut k that one block would add for a long time, and so much k that writing and reading the
// parts does not count.
inline bool suits_split_k(const GemmProblem& p) {
  return tiles(p, 128) <= 64 && stages(p) >= std::max<int64_t>(2 * tiles(p, 128), 40);
}

// Where bf16x6's pre-pass would take longer than what it saves: C narrow, or small against k, or small
// matrices. (At 384 x 384 x 384 and 1024 x 1024 x 1024 bf16x6 is the faster one by 1.3 and 1.4, at 512 x 512
// x 2048 this one by 1.15, at 128 x 8192 x 8192 by 1.4.)
inline bool suits_fused(const GemmProblem& p) {
  const int64_t narrow = std::min(p.m, p.n), wide = std::max(p.m, p.n);
  return narrow <= 128 || wide <= 256 || (wide <= 512 && p.k >= 4 * wide);
}

// The same for three products of planes. bf16x6_fused is no less precise.
inline bool suits_three_planes(const GemmProblem& p) { return !suits_fused(p); }

// Batches of matrices so small that tiles for tensor cores would be mostly empty. (float32 comes here where
// direct does not suit.)
inline bool suits_batched(const GemmProblem& p) {
  return p.batch >= 16 && std::max(p.m, p.n) <= 64 && p.k <= 128;
}

}  // namespace fastgemm
