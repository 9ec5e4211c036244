// Copies the lower triangle of a matrix to its upper triangle, mirrored.
#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// For i > j, out[j, i] = out[i, j]. out: (n, n) with contiguous rows; an element has 1, 2, 4, 8 or 16 bytes.
// `conjugated` is for Hermitian products: elements are complex, out[j, i] is the conjugate of out[i, j], and
// the diagonal becomes real.
struct Mirror {
  int bytes = 4;
  bool conjugated = false;
  int64_t batch = 1, n = 0;
  Matrix out;  // strides in elements

  // The mirror pass of a problem whose result is symmetric.
  static Mirror of(const GemmProblem& p) {
    const int parts = p.symmetry.parts;
    Mirror m{element_size(p.out_type) * parts, p.symmetry.conjugated, p.batch, p.m, p.out};
    m.out.row_stride /= parts, m.out.batch_stride /= parts;
    return m;
  }
};

namespace cpu {
void mirror(const Mirror&, Context&);
}
namespace cuda {  // where the CUDA code was built
void mirror(const Mirror&, Context&);
}
namespace simt {
void mirror(const Mirror&, Context&);
}

}  // namespace fastgemm
