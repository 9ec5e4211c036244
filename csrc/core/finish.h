// The epilogue of a product whose kernel did not apply it, as one elementwise pass.
#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// out = activation(sums + bias) + beta * c, computed in float32 (float64 of that type) and rounded once.
// `sums` may be out itself where their types are equal.
struct Finish {
  DType sum_type = DType::f32, out_type = DType::f32;
  int64_t batch = 1, m = 0, n = 0;
  ConstMatrix sums, c;
  Matrix out;
  double beta = 0.0;
  Epilogue epilogue;

  Finish transposed() const {
    Finish f = *this;
    f.m = n, f.n = m;
    f.sums = sums.transposed(), f.c = c.transposed(), f.out = out.transposed();
    f.epilogue = epilogue.transposed();
    return f;
  }
};

// The product of a problem without its epilogue and c.
inline GemmProblem sums_of(const GemmProblem& p) {
  GemmProblem q = p;
  q.c = {}, q.beta = 0.0, q.epilogue = {};
  return q;
}
// What is left to do to the result of `product`.
inline Finish finish_of(const GemmProblem& p, const GemmProblem& product) {
  const Matrix& s = product.out;
  return {product.out_type,
          p.out_type,
          p.batch,
          p.m,
          p.n,
          {s.data, s.row_stride, s.col_stride, s.batch_stride},
          p.c,
          p.out,
          p.beta,
          p.epilogue};
}

namespace cpu {
void finish(const Finish&, Context&);
}
namespace cuda {  // where the CUDA code was built
void finish(const Finish&, Context&);
}
namespace simt {
void finish(const Finish&, Context&);
}

}  // namespace fastgemm
