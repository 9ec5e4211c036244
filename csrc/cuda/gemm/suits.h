// Which problems the kernels for special shapes suit: where they were seen to be faster than the ones for
// large products, on an H200 (132 multiprocessors). A level picks them there; by name they take every
// problem.
#pragma once

#include <algorithm>

#include "core/problem.h"
#include "cuda/available.h"

namespace fastgemm {

inline int64_t tiles(const GemmProblem& p, int64_t size) {
  return p.batch * ((p.m + size - 1) / size) * ((p.n + size - 1) / size);
}
inline int64_t stages(const GemmProblem& p) {  // of 128 bytes of k
  return (p.k * element_size(p.type) + 127) / 128;
}

// Mostly what cuBLAS takes less than 15 us for: of 404 sizes of chance another own kernel is faster by a
// tenth at 44 in float32 (few columns, k of some hundreds) and at 63 in bf16 (a large C of short sums).
// Batches and bytes were not compared. float32 is multiplied in fp64, which must be fast.
inline bool suits_direct(const GemmProblem& p) {
  if (p.type == DType::f32 && !cuda::has_fast_float64()) return false;
  return p.batch == 1 && p.type != DType::i8 && std::min(p.m, p.n) > 16 && tiles(p, 32) * p.k <= 96 << 10;
}

// At four times as much wgmma_specialized is faster. Bytes that do not lie along k would have to be copied.
inline bool suits_small_tile(const GemmProblem& p) {
  const bool in_place = p.type != DType::i8 || (p.a.col_stride == 1 && p.b.row_stride == 1);
  return in_place && tiles(p, 64) * stages(p) <= 1024;
}

// Where reading one operand takes longer than all else: not where it is small (4 MB take 1 us), C is as
// large, or few rows of it have a long k.
inline bool suits_skinny(const GemmProblem& p) {
  const int64_t narrow = std::min(p.m, p.n), side = std::max(p.m, p.n);
  return narrow <= 64 && side >= 256 && p.k >= 16 * narrow &&
         double(p.batch) * double(side) * double(p.k) * element_size(p.type) >= 4 << 20;
}

// Where the launch and the first misses decide: X small against what tensor cores gain by reading it once for
// all of the narrow side (16-bit types and bytes), or by summing for free (float32, as six products). int32
// has nothing faster here; float64 has at 53 of 459 sizes of chance, direct where the narrow side is above 8.
// (float32 NT: 1 x 8192 x 8192 77 us, bf16x6_fused 85; 2103 x 6 x 3882 27 against 35; 16 x 8192 x 8192 125
// against 88.)
inline bool suits_narrow(const GemmProblem& p) {
  const int64_t narrow = std::min(p.m, p.n);
  if (narrow > 16 || p.batch >= 16) return false;
  if (p.type == DType::f64 || p.type == DType::i32) return true;
  const int64_t most = int64_t{narrow <= 4 ? 16 : narrow <= 8 ? 4 : 1} << (p.type == DType::f32 ? 24 : 20);
  return double(p.batch) * double(std::max(p.m, p.n)) * double(p.k) * element_size(p.type) <= double(most);
}

// So many ways to cut k that one block would add for a long time, and so much k that writing and reading the
// parts does not count.
inline bool suits_split_k(const GemmProblem& p) {
  return tiles(p, 128) <= 64 && stages(p) >= std::max<int64_t>(4 * tiles(p, 128), 64);
}

// Where bf16x6's pre-pass would take longer than what it saves: C narrow, or small against k, or small
// matrices. (At 384 x 384 x 384 and 1024 x 1024 x 1024 bf16x6 is the faster one by 1.3 and 1.4, at 512 x 512
// x 2048 this one by 1.15, at 128 x 8192 x 8192 by 1.4.)
inline bool suits_fused(const GemmProblem& p) {
  const int64_t narrow = std::min(p.m, p.n), wide = std::max(p.m, p.n);
  return narrow <= 128 || wide <= 256 || (wide <= 512 && p.k >= 4 * wide);
}

// Batches of matrices so small that tiles for tensor cores would be mostly empty.
inline bool suits_batched(const GemmProblem& p) {
  return p.batch >= 16 && std::max(p.m, p.n) <= 64 && p.k <= 128;
}

}  // namespace fastgemm
