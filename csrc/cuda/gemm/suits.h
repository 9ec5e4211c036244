// Which problems the kernels for special shapes suit: where they were seen to be faster than the ones for
// large products, on an H200 (132 multiprocessors). A level picks them there, the first of the table that
// suits; by name they take every problem. tests/core/test_suits.py holds the rules against the measured points.
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
    case DType::f32:
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

// Batches of matrices so small that tiles for tensor cores would be mostly empty.
inline bool suits_batched(const GemmProblem& p) {
  return p.batch >= 16 && std::max(p.m, p.n) <= 64 && p.k <= 128;
}

}  // namespace fastgemm
