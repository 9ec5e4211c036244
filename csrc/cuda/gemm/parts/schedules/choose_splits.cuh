// Split-K on the host's side, for kernels that store all of a tile as one part of k: when C has too few tiles
// to occupy the device, several blocks share the k of a tile, each writes its sums as a matrix of its own,
// and a second launch adds those in a fixed order (parts/schedules/split_k.cuh). How many: predict/plans.h.
#pragma once

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The splits of cp_async, which has so many steps of k, of kCpAsyncDepth words.
inline constexpr int kCpAsyncDepth = 16;
int cp_async_splits(int64_t tiles, int64_t steps);

// The same problem with a result in the workspace: split s of matrix i is its matrix number s * batch + i.
// Its n is that of whole 16-byte units.
template <class T>
Gemm<T> split_result(const Gemm<T>&, int batch, int splits, Context&);
// out = alpha * (the sum of the splits) + beta * c.
template <class T>
void add_split_result(const Gemm<T>& split, const Gemm<T>&, int batch, int splits, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
