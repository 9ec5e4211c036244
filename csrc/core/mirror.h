// Writes the upper triangle of a matrix from its lower one.
#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// Element (j, i) of out becomes element (i, j), for i > j. out: (n, n) with contiguous rows, whose elements
// have 1 to 16 bytes (a power of two). `conjugated`: elements are complex, (j, i) becomes the conjugate of
// (i, j), and the diagonal real, which is what the result of a Hermitian product has.
struct Mirror {
  int bytes = 4;
  bool conjugated = false;
  int64_t batch = 1, n = 0;
  Matrix out;  // strides in elements

  // That of a problem whose result is symmetric.
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
