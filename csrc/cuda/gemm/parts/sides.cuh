// Side describes A by m and k, and B by n and k, so that the same code serves both operands. Sides orders
// them by the longer and the shorter side of C, for kernels in which only the lengths of m and n matter. C
// or, if `swapped`, its transpose is `wide` times the transpose of `narrow`:
//
//             k                    k               narrow.side
//   wide  +-------+      narrow +-------+         +---------+
//   .side |       |       .side |       |         | C  or   |  wide
//         |       |             +-------+         | C^T     |  .side
//         +-------+                               +---------+
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// An operand by its two indices: element (s, k) lies at data + s * side_stride + k * k_stride, where s is m
// of A or n of B.
template <class T>
struct Side {
  const T* data;
  int64_t side, k, side_stride, k_stride, batch_stride;

  Side part_of_k(int64_t first, int64_t length) const {
    return {data + first * k_stride, side, length, side_stride, k_stride, batch_stride};
  }
};

// The operands of a batch of `batch` matrices. batch_stride is 0 where the batch shares the operand.
template <class T>
Side<T> side_a(const Gemm<T>& g, int batch) {
  return {g.a.data, g.m, g.k, g.a.row_stride, g.a.col_stride, batch > 1 ? g.a.batch_stride : 0};
}
template <class T>
Side<T> side_b(const Gemm<T>& g, int batch) {
  return {g.b.data, g.n, g.k, g.b.col_stride, g.b.row_stride, batch > 1 ? g.b.batch_stride : 0};
}

// Both operands, the one with the longer side of C first.
template <class T>
struct Sides {
  Side<T> wide, narrow;
  bool swapped;  // the rows of `wide` are the columns of C

  Sides(const Gemm<T>& g, int batch) : wide(side_a(g, batch)), narrow(side_b(g, batch)), swapped(g.n > g.m) {
    if (swapped) std::swap(wide, narrow);
  }
};

// Whether an operand can be read in loads of `count` elements, along k or along the side. Elements must be
// contiguous in that direction, and each line must begin and end with a whole load.
template <class T>
bool takes_loads_of(int count, bool along_k, const Side<T>& s, int batch) {
  const int64_t step = along_k ? s.k_stride : s.side_stride, length = along_k ? s.k : s.side;
  const int64_t pitch = along_k ? s.side_stride : s.k_stride, lines = along_k ? s.side : s.k;
  return step == 1 && length % count == 0 && is_aligned(s.data, count * sizeof(T)) &&
         (lines == 1 || pitch % count == 0) && (batch == 1 || s.batch_stride % count == 0);
}

}  // namespace fastgemm::FASTGEMM_TARGET
