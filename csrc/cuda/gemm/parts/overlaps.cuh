// Whether the blocks of a product should begin while the kernel before ends (LaunchShape::overlaps).
#pragma once

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Blocks that begin so are placed on multiprocessors in another order, which slows down a long read of an
// operand: on an H200 `skinny` gained 5 % below 32 MB, nothing from 32 to 64 MB, and lost 2 %, at most 15 %,
// above. For less than that the early start saves half a microsecond.
template <class T>
bool overlaps_well(const Gemm<T>& g, int batch) {
  constexpr double kLongRead = 32e6;  // bytes
  return double(batch) * double(g.m + g.n) * double(g.k) * sizeof(T) < kLongRead;
}

}  // namespace fastgemm::FASTGEMM_TARGET
