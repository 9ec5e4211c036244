// An operand of a product by residues: the rows of A or the columns of B. Both are called rows here, with k
// along them.
//
//   A --[measure]--> norms --[scale]--> powers of two --[cut]--> residues, shares --[survey]--> limits
//
// A row is multiplied by the largest power of two that keeps its norm below what the moduli can represent,
// rounded to integers, and cut into residues. Rows that cannot be scaled are marked: they are not finite, or
// their norm is near an end of the range of exponents. Tiles of C with such a row are not computed by
// residues. Rows of int64 are cut without scaling.
#pragma once

#include "cuda/gemm/parts/problem.cuh"
#include "cuda/gemm/parts/residues/moduli.h"
#include "cuda/gemm/parts/residues/selection.cuh"
#include "cuda/gemm/parts/sides.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

using namespace fastgemm::residues;

// Sums over one chunk of a row.
struct Norms {
  double squares, magnitudes;
};

// The power of two that a row is multiplied by, and the thresholds that its elements are compared with.
struct Scale {
  double scale, unscale;            // unscale is 1 / scale, 0 for a row of zeros, NaN for one without a scale
  uint32_t threshold[kThresholds];  // high words of magnitudes
};

// The length of a row's residues, which are padded by zeros to whole stages. The TMA could supply the zeros,
// but with rows that do not begin at 32-byte sectors it reads a quarter more from L2, which takes a third
// longer.
__host__ __device__ constexpr int64_t padded_k(int64_t k) { return (k + 127) / 128 * 128; }

template <class T>
struct Source {
  Side<T> side;
  int group;           // rows of a tile: kTileM or kTileN
  bool takes_vectors;  // k is contiguous, and rows begin at multiples of 16 bytes
  bool reused;         // other panels of C, with other rows of the other operand, use the same residues
  int8_t* residues;    // [modulus][row][padded_k()]
  // For floating point only:
  Norms* norms;      // [row][chunk of kMeasured]
  Scale* scales;     // [row]
  uint32_t* useful;  // [group of rows]: 0 if no tile with these rows is computed by residues
  uint32_t* shares;  // [row][chunk of kCutK]: a byte for each threshold; null if tiles are not judged
  Limits* limits;    // [group of rows]

  __host__ __device__ __forceinline__ int groups() const { return int((side.side + group - 1) / group); }

  __host__ __device__ __forceinline__ int64_t padded_k() const { return residues::padded_k(side.k); }
};

// How k is divided among blocks.
inline constexpr int kRows = 32, kMeasured = 1024, kCutK = 128, kThreads = 256;

// A row can be scaled if its squared norm is between these: then no exponent leaves its range.
inline constexpr double kLeastSquare = 0x1p-900, kMostSquare = 0x1p900;

// Both operands of a product in one grid: blocks of A first.
template <class T>
struct Sources {
  Source<T> a, b;
  int blocks_a;
  bool all;  // also cut rows that no tile needs
};

struct BlockPlace {
  int64_t row, chunk;  // the first row, and the chunk of k
};
// Calls body(operand of this block, the other operand, place).
template <class T, class Body>
__device__ __forceinline__ void with_source(const Sources<T>& s, int chunk, Body&& body) {
  const bool in_a = int(blockIdx.x) < s.blocks_a;
  const Source<T>& source = in_a ? s.a : s.b;
  const int64_t index = int(blockIdx.x) - (in_a ? 0 : s.blocks_a);
  const int64_t chunks = (source.side.k + chunk - 1) / chunk;
  body(source, in_a ? s.b : s.a, BlockPlace{index / chunks * kRows, index % chunks});
}
template <class T>
int blocks_of(const Source<T>& s, int chunk) {
  return int(ceil_div(s.side.side, kRows) * ceil_div(s.side.k, chunk));
}

// Whether x is true in any thread of the block. A kernel may call this only once.
template <int threads>
__device__ __forceinline__ bool any_of_block(bool x) {
  FASTGEMM_SHARED uint32_t votes[threads / 32];
  const bool of_warp = __any_sync(0xffffffffu, x);
  if (threadIdx.x % 32 == 0) votes[threadIdx.x / 32] = of_warp;
  __syncthreads();
  uint32_t any = 0;
  FASTGEMM_UNROLL
  for (int i = 0; i < threads / 32; ++i) any |= votes[i];
  return any != 0;
}

// Whether any group of rows is useful.
template <int threads, class T>
__device__ __forceinline__ bool any_useful(const Source<T>& s) {
  bool any = false;
  for (int i = int(threadIdx.x); i < s.groups(); i += threads) any |= s.useful[i] != 0;
  return any_of_block<threads>(any);
}

// Whether neighbouring lanes should have neighbouring rows, because k is not contiguous.
template <class T>
__device__ __forceinline__ bool runs_along_side(const Side<T>& s) {
  return s.side_stride == 1 && s.k_stride != 1;
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
