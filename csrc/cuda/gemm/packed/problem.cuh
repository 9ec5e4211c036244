// The arguments of kernels whose B is a packed weight (core/packed_weight.h), and the dispatch to the type of
// x:
//
//   x (m, k) * weight (n, k)^T -> out (m, n) = x weight^T + beta * c
//
// Codes are in units. Gemm<T>::a is x; Gemm<T>::b is not used.
#pragma once

#include "core/packed_weight.h"
#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A unit of 64 rows and 128 columns: its codes, and the scales and zeros that it uses.
struct UnitView {
  const unsigned char* codes;
  const unsigned char *scales, *zeros;
  int64_t first;  // index of the scale of its first row, if scales serve whole rows
};

struct PackedOperand {
  PackedWeight weight;
  const unsigned char* units;
  int64_t n, k;
  int columns, bytes, scale_bytes;  // units side by side; size of a unit, and of its scales
  bool by_rows;                     // one scale serves a whole row

  // The unit that holds weight (row, column).
  __device__ __forceinline__ UnitView unit_at(int64_t row, int64_t column) const {
    const int64_t unit_row = row / packed::kRows, unit_column = column / packed::kColumns;
    const unsigned char* const codes = units + (unit_row * columns + unit_column) * bytes;
    if (by_rows)
      return {codes, static_cast<const unsigned char*>(weight.scales),
              static_cast<const unsigned char*>(weight.zeros), unit_row * packed::kRows};
    const unsigned char* const scales = codes + packed::unit_code_bytes(weight);
    return {codes, scales, scales + scale_bytes, 0};
  }
  // The index of the scale and zero of row r, column c of a unit. The row lies inside the weight.
  __device__ __forceinline__ int64_t scale_index(const UnitView& unit, int r, int c) const {
    return by_rows ? unit.first + r : packed::scale_in_unit(weight, r, c);
  }
};

template <class T>
struct PackedGemm {
  Gemm<T> gemm;
  PackedOperand b;
};

inline PackedOperand packed_operand(const GemmProblem& p) {
  return {p.packed,
          static_cast<const unsigned char*>(p.b.data),
          p.n,
          p.k,
          int(packed::blocks(p.k, packed::kColumns)),
          packed::unit_bytes(p.packed, p.k),
          packed::unit_scale_bytes(p.packed, p.k),
          p.packed.by_rows(p.k)};
}

// Calls launch(const PackedGemm<T>&) with T as the type of x; empty results and k = 0 are handled here.
template <class... T, class Launch>
void run_packed(const GemmProblem& p, Context& context, Launch&& launch) {
  run_gemm<T...>(p, context, [&]<class Element>(const Gemm<Element>& g, int /* batch: 1 */) {
    launch(PackedGemm<Element>{g, packed_operand(p)});
  });
}
template <class Launch>
void run_packed_floats(const GemmProblem& p, Context& context, Launch&& launch) {
  run_packed<float, Half, BFloat16>(p, context, launch);
}

}  // namespace fastgemm::FASTGEMM_TARGET
