// Whether the blocks of a product should begin while the kernel before ends (LaunchShape::overlaps).
//
// Every kernel that begins early waits in each of its blocks (grid_dependency_wait()) before it reads or
// writes global memory, even where a block has no work: the kernel after it may begin early, too, and relies
// on that. Early kernels do not load through the read-only path (__ldg), because the kernel before may still
// write. They may ask L2 for lines before they wait (prefetch_line()).
#pragma once

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Blocks that begin early are placed on multiprocessors in another order, which slows down a long read of an
// operand: on an H200 `skinny` gained 5 % below 32 MB, nothing from 32 to 64 MB, and lost 2 %, at most 15 %,
// above (126 products in CUDA graphs).
template <class T>
bool overlaps_well(const Gemm<T>& g, int batch) {
  constexpr double kLongRead = 32e6;  // bytes
  return double(batch) * double(g.m + g.n) * double(g.k) * sizeof(T) < kLongRead;
}

}  // namespace fastgemm::FASTGEMM_TARGET
