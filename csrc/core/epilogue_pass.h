// The epilogue as one elementwise pass, after a kernel that did not apply it.
#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// out = activation((sums * scales.rows) * scales.columns + bias) + beta * c, computed in float32 (in float64
// if that is the type, which has no scales) and rounded once. `sums` may be out itself if their types are
// equal.
struct EpiloguePass {
  DType sum_type = DType::f32, out_type = DType::f32;
  int64_t batch = 1, m = 0, n = 0;
  ConstMatrix sums, c;
  Matrix out;
  double beta = 0.0;
  Epilogue epilogue;
  SumScales scales;

  EpiloguePass transposed() const {
    EpiloguePass t = *this;
    t.m = n, t.n = m;
    t.sums = sums.transposed(), t.c = c.transposed(), t.out = out.transposed();
    t.epilogue = epilogue.transposed();
    std::swap(t.scales.rows, t.scales.columns);
    return t;
  }
};

// The problem without its scales, epilogue and c.
inline GemmProblem sums_of(const GemmProblem& p) {
  GemmProblem q = p;
  q.c = {}, q.beta = 0.0, q.epilogue = {}, q.scales = {};
  return q;
}
// The pass that makes the result of p from the result of `product`.
inline EpiloguePass pass_after(const GemmProblem& p, const GemmProblem& product) {
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
          p.epilogue,
          p.scales};
}

namespace cpu {
void run_epilogue_pass(const EpiloguePass&, Context&);
}
namespace cuda {  // where the CUDA code was built
void run_epilogue_pass(const EpiloguePass&, Context&);
}
namespace simt {
void run_epilogue_pass(const EpiloguePass&, Context&);
}

}  // namespace fastgemm
