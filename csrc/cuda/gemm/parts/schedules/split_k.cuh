// Split-K: where C has too few tiles to occupy the device, several blocks share the k of a tile. Contract:
// each block writes its partial sums to the matrix of its split (SplitSums::put), and add_splits() adds these
// matrices in a fixed order and writes C.
//
//   k       0 ......|........|........ k       add_splits, a second launch
//   blocks   split 0  split 1  split 2
//               |        |        |            +---+
//               v        v        v        ->  | C |  = alpha * (s0 + s1 + s2) + beta * c
//            [ s0 ]   [ s1 ]   [ s2 ]          +---+
//            (m, pitch) in the workspace
//
// The second kernel starts while the first one still runs (programmatic dependent launch), and has all of its
// loads in flight at once. For a long k this takes less time than stream-K, in which one block adds the sums
// of all others in turn.
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Matrices of partial sums (m, pitch) in the workspace, [split][batch]. Rows are whole vectors of 16 bytes,
// so that they can be written and read as such. Elements from column n on are undefined.
template <class Acc>
struct SplitSums {
  Acc* data;
  int64_t pitch, matrix;  // elements per row and per matrix
  int m, n, batch, splits;

  // Stores the sums of `column`, which is even, and column + 1, unless they lie beyond the pitch.
  __device__ __forceinline__ void put(int split, int matrix_index, int row, int column, Acc first,
                                      Acc second) const {
    if (row >= m || column >= pitch) return;
    Acc* const to = data + (int64_t(split) * batch + matrix_index) * matrix + row * pitch + column;
    store_vector(to, Vector<Acc, 2>{{first, second}});
  }

  // Stores a warp's M x N tiles of mma, from (row, column) on.
  template <int M, int N>
  __device__ __forceinline__ void put(int split, int matrix_index, int row, int column,
                                      const Acc (&sum)[M][N][4]) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < M; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < N; ++j) {
        FASTGEMM_UNROLL
        for (int r = 0; r < 4; r += 2) {
          const Position p = MmaLayout<float>::c(int(threadIdx.x) % 32, r);  // the same for all types
          put(split, matrix_index, row + 16 * i + p.row, column + 8 * j + p.column, sum[i][j][r],
              sum[i][j][r + 1]);
        }
      }
    }
  }
};

template <class T>
SplitSums<Accumulator<T>> split_sums(const Gemm<T>& g, int batch, int splits, Context& context) {
  using Acc = Accumulator<T>;
  const int64_t pitch = ceil_div(g.n, kPer16Bytes<Acc>) * kPer16Bytes<Acc>, matrix = g.m * pitch;
  void* const data = context.allocate(sizeof(Acc) * size_t(splits) * size_t(batch * matrix));
  return {static_cast<Acc*>(data), pitch, matrix, int(g.m), int(g.n), batch, splits};
}

// The matrices as the result that a kernel writes: split s of matrix i is matrix s * batch + i of its batch.
template <class T>
Result<T> result_in(const SplitSums<Accumulator<T>>& sums) {
  return {sums.data, sums.pitch, sums.matrix, nullptr, 0, 0, 0, 1, 0, Result<T>::kMayBeWide};
}

// A policy of add_splits: finish() may change a lane's sums before they are stored. AsAdded does not;
// Repaired (parts/float_dot.cuh) corrects sums of products of planes.
struct AsAdded {
  template <class T, class Sums, class Place>
  __device__ __forceinline__ static void finish(Sums&, const Gemm<T>&, int, Place&&) {}
};

// out = alpha * (the sum of the splits) + beta * c, with an epilogue for 16-bit types and float32. The kernel
// before may call launch_dependents() (programmatic dependent launch).
template <class Finish = AsAdded, class T>
void add_splits(const SplitSums<Accumulator<T>>&, const Gemm<T>&, Context&, const Epilogue& = {});

// Calls run(result, columns), which launches a kernel whose blocks may share k. If they do, it then launches
// the kernel that adds their sums. Split s of matrix i writes matrix number s * batch + i of `result`, with
// `columns` elements per row: `result` is C if k is not split; run() then applies the epilogue. Otherwise it
// is in the workspace.
template <class Finish = AsAdded, class T, class Run>
void launch_splits(const Gemm<T>& g, int batch, int splits, const Epilogue& epilogue, Context& context,
                   Run&& run) {
  if (splits <= 1) return run(g.result, g.n);
  const auto sums = split_sums(g, batch, splits, context);
  run(result_in<T>(sums), sums.pitch);
  add_splits<Finish>(sums, g, context, epilogue);
}

// Adds vectors to `sum`, in order, from the addresses that next() returns. Each vector decreases `left` by
// `step`; they are added while it is positive. AT_ONCE loads are in flight at a time. With `left` <= 0 the
// body runs once and adds nothing.
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

// Divides the stages of k into equal parts: the first `longer` splits have one more.
struct SplitStages {
  int share, longer;

  SplitStages() = default;
  SplitStages(int stages, int splits) : share(stages / splits), longer(stages % splits) {}
  __device__ __forceinline__ int begin(int split) const { return split * share + min(split, longer); }
};

}  // namespace fastgemm::FASTGEMM_TARGET
