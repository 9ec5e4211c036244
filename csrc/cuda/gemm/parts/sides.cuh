// A product by the longer and the shorter side of C, for kernels to which m and n are the same but for their
// length. C or, where `swapped`, its transpose is `wide` times the transpose of `narrow`:
//
//             k                    k               narrow.side
//   wide  +-------+      narrow +-------+         +---------+
//   .side |       |       .side |       |         | C  or   |  wide
//         |       |             +-------+         | C^T     |  .side
//         +-------+                               +---------+
#pragma once

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T>
struct Sides {
  Side<T> wide, narrow;
  bool swapped;  // rows of `wide` are columns of C

  explicit Sides(const Gemm<T>& g) : wide(g.side_a()), narrow(g.side_b()), swapped(g.n > g.m) {
    if (swapped) std::swap(wide, narrow);
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
