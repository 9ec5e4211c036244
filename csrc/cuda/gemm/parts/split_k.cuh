// Split-K: when C has too few tiles to occupy the device, several blocks share the k of a tile. Each writes
// its sums as a matrix of its own, and a second kernel adds those in a fixed order. It is launched while the
// first still runs and asks for all of its operands at once. (256 x 256 x 65536 in bf16: 33 us, where
// wgmma_specialized, one block of which adds the sums of 32 others in turn, takes 57.)
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Matrices of sums (m, pitch) in the workspace: [split][batch]. Rows are whole vectors of 16 bytes, all of
// which is written and read: behind the n-th column anything.
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
  using Acc = Accumulator<T>;
  const int64_t pitch = ceil_div(g.n, kPer16Bytes<Acc>) * kPer16Bytes<Acc>, matrix = g.m * pitch;
  void* const data = context.allocate(sizeof(Acc) * size_t(splits) * size_t(batch * matrix));
  return {static_cast<Acc*>(data), pitch, matrix, int(g.m), int(g.n), batch, splits};
}

// The same as the result of a kernel: that of split s of matrix i is number s * batch + i, its rows as long
// as the pitch.
template <class T>
Result<T> result_in(const SplitSums<Accumulator<T>>& sums) {
  return {sums.data, sums.pitch, sums.matrix, nullptr, 0, 0, 0, 1, 0, Result<T>::kMayBeWide};
}

// What a lane's sums become before they are stored: what they are, or for products of planes what Repaired
// (parts/float_dot.cuh) makes of them.
struct AsAdded {
  template <class T, class Sums, class Place>
  __device__ __forceinline__ static void finish(Sums&, const Gemm<T>&, int, Place&&) {}
};

// out = alpha * (the sum of the splits) + beta * c. The kernel before may have called
// let_next_kernel_begin().
template <class Finish = AsAdded, class T>
void add_splits(const SplitSums<Accumulator<T>>&, const Gemm<T>&, Context&);

// Adds vectors to `sum` in order: while `left`, less `step` for each, is positive, from where next() says.
// AT_ONCE of them are on their way at a time. The loop also runs once for nothing.
template <int AT_ONCE, class Acc, class Next>
__device__ __forceinline__ void add_vectors(Vector16<Acc>& sum, int left, int step, Next&& next) {
  FASTGEMM_NO_UNROLL
  do {
    Vector16<Acc> read[AT_ONCE];
    FASTGEMM_UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      const Acc* const from = next();
      if (i * step < left) read[i] = load_vector<Vector16<Acc>>(from);
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      if (i * step >= left) continue;
      FASTGEMM_UNROLL
      for (int e = 0; e < kPer16Bytes<Acc>; ++e) sum[e] += read[i][e];
    }
    left -= AT_ONCE * step;
  } while (left > 0);
}

// The stages of k in equal parts: the first `longer` splits have one more.
struct SplitStages {
  int share, longer;

  SplitStages() = default;
  SplitStages(int stages, int splits) : share(stages / splits), longer(stages % splits) {}
  __device__ __forceinline__ int begin(int split) const { return split * share + min(split, longer); }
};

}  // namespace fastgemm::FASTGEMM_TARGET
