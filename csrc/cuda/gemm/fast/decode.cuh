// Code that the kernels for few rows share whose results do not depend on the other rows (invariant.cu,
// decode_planes.cu).
#pragma once

#include "core/min_max.h"
#include "cuda/gemm/parts/wgmma_operand.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {

// The tiles (kDecodeRows, columns) of a batch. Consecutive blocks have the same columns, so that they share B
// in L2.
struct DecodeTiles {
  int tiles_m, tiles_n, count;  // tiles per matrix, and in all
  int rows;  // rows in a box of A (invariant.cu): C's rows, rounded up to 8, at most a tile's

  struct Place {
    int batch, row, column;
  };
  template <int columns>
  __device__ __forceinline__ Place place_of(int tile) const {
    const int column = tile / tiles_m;
    return {column / tiles_n, tile % tiles_m * plans::kDecodeRows, column % tiles_n * columns};
  }
  int blocks() const { return std::min(count, multiprocessors()); }
};
inline DecodeTiles decode_tiles(int batch, int64_t m, int64_t n, int columns) {
  const int tiles_m = int(ceil_div(m, plans::kDecodeRows)), tiles_n = int(ceil_div(n, columns));
  return {tiles_m, tiles_n, batch * tiles_m * tiles_n,
          int(std::min<int64_t>(plans::kDecodeRows, ceil_div(m, 8) * 8))};
}

// Returns the activations as box_operand() does. They are small, so they are copied where m runs along rows.
template <class T>
BoxOperand<T> activations(const Side<T>& s, int batch, RowCopies& copies, Context& context) {
  const BoxOperand<T> o = operand_in_place(s, batch);
  return o.major == Major::mn ? copied_along(Major::k, s, batch, context)
                              : box_operand(s, batch, 1, false, copies, context);
}

// Whether two neighbours of a row of C can be stored together.
template <class T>
bool stores_pairs(const Result<T>& r, int batch) {
  return is_aligned(static_cast<const char*>(r.out), size_t(2 * r.out_bytes())) && r.row_stride % 2 == 0 &&
         (batch == 1 || r.batch_stride % 2 == 0);
}

// Computes a product of few rows with the bits of wgmma_specialized (invariant.cu): 16-bit types, and tf32
// without scales whose weights lie along k. Returns false, and launches nothing, for any other product.
bool multiply_few_rows(const GemmProblem&, Context&);

// Computes float32 products of few rows with the bits of bf16x6 (decode_planes.cu). Only for a k that bf16x6
// sums in one launch.
void decode_by_planes(const Gemm<float>&, int batch, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
