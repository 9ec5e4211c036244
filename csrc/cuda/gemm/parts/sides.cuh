// A product by the longer and the shorter side of C, for kernels to which m and n are the same but for their
// length. C or, where `swapped`, its transpose is `wide` times the transpose of `narrow`:
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

template <class T>
struct Sides {
  Side<T> wide, narrow;
  bool swapped;  // rows of `wide` are columns of C

  Sides(const Gemm<T>& g, int batch) : wide(g.side_a(batch)), narrow(g.side_b(batch)), swapped(g.n > g.m) {
    if (swapped) std::swap(wide, narrow);
  }
};

// Whether loads of `count` elements, along k or along the side, meet all of an operand: neighbours lie next
// to each other, and lines of them begin and end where loads do.
template <class T>
bool takes_loads_of(int count, bool along_k, const Side<T>& s, int batch) {
  const int64_t step = along_k ? s.k_stride : s.side_stride, length = along_k ? s.k : s.side;
  const int64_t pitch = along_k ? s.side_stride : s.k_stride, lines = along_k ? s.side : s.k;
  return step == 1 && length % count == 0 && is_aligned(s.data, count * sizeof(T)) &&
         (lines == 1 || pitch % count == 0) && (batch == 1 || s.batch_stride % count == 0);
}

}  // namespace fastgemm::FASTGEMM_TARGET
