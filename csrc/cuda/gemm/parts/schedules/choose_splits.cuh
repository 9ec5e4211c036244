// Split-K on the host's side. If C has too few tiles to occupy the device, k is cut into parts (splits), and
// a block computes the sums of one tile over one split. The sums of each split are a matrix in the workspace,
// and a second launch adds these matrices in a fixed order (parts/schedules/split_k.cuh). plans.h in
// predict/ chooses the number of splits.
#pragma once

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The number of splits of cp_async, for `tiles` tiles of C and `steps` stages of k of kCpAsyncDepth words.
inline constexpr int kCpAsyncDepth = 16;
int cp_async_splits(int64_t tiles, int64_t steps);

// The same problem with its result in the workspace: matrix number s * batch + i has the sums of split s of
// matrix i. Its n is rounded up to whole units of 16 bytes.
template <class T>
Gemm<T> split_result(const Gemm<T>&, int batch, int splits, Context&);
// out = alpha * (the sum of the splits) + beta * c.
template <class T>
void add_split_result(const Gemm<T>& split, const Gemm<T>&, int batch, int splits, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
