// Split-K of the tensor-core rungs: when C has too few tiles to occupy the device, several blocks share the k
// of a tile. Each writes its sums as a matrix of its own, and a second kernel adds those in a fixed order. It
// is launched while the first still runs and asks for all of its operands at once. (256 x 256 x 65536 in
// bf16: 33 us, where wgmma_specialized, one block of which adds the sums of 32 others in turn, takes 57.)
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Matrices of sums (m, pitch) in the workspace: [split][batch]. The pitch is a multiple of 4.
template <class Acc>
struct SplitSums {
  Acc* data;
  int64_t pitch, matrix;  // elements of a row, of a matrix
  int m, n, batch, splits;

  // Columns `column`, which is even, and the one behind it; up to the pitch, as far as is read.
  __device__ __forceinline__ void put(int split, int matrix_index, int row, int column, Acc first,
                                      Acc second) const {
    if (row >= m || column >= pitch) return;
    Acc* const to = data + (int64_t(split) * batch + matrix_index) * matrix + row * pitch + column;
    store_vector(to, Vector<Acc, 2>{{first, second}});
  }
};

template <class T>
SplitSums<Accumulator<T>> split_sums(const Gemm<T>& g, int batch, int splits, Context& context) {
  const int64_t pitch = ceil_div(g.n, 4) * 4, matrix = g.m * pitch;
  void* const data = context.allocate(sizeof(Accumulator<T>) * size_t(splits) * size_t(batch * matrix));
  return {static_cast<Accumulator<T>*>(data), pitch, matrix, int(g.m), int(g.n), batch, splits};
}

// out = alpha * (the sum of the splits) + beta * c, behind a kernel that has called let_next_kernel_begin().
template <class T>
void add_splits(const SplitSums<Accumulator<T>>&, const Gemm<T>&, Context&);

// The stages of k in equal parts: the first `longer` splits have one more.
struct SplitStages {
  int share, longer;

  SplitStages() = default;
  SplitStages(int stages, int splits) : share(stages / splits), longer(stages % splits) {}
  __device__ __forceinline__ int begin(int split) const { return split * share + min(split, longer); }
};

}  // namespace fastgemm::FASTGEMM_TARGET
