// The epilogue as one elementwise pass, after a kernel that did not apply it.
#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// A number for each row, or for each column. null: 1.
struct LineScales {
  const float* data = nullptr;
  int64_t stride = 0;  // 0: one for all

  FASTGEMM_ANYWHERE float at(int64_t i) const { return data[i * stride]; }
};

// out = activation((sums * row_scales) * column_scales + bias) + beta * c, computed in float32 (in float64 if
// that is the type, which has no scales) and rounded once. `sums` may be out itself if their types are equal.
struct EpiloguePass {
  DType sum_type = DType::f32, out_type = DType::f32;
  int64_t batch = 1, m = 0, n = 0;
  ConstMatrix sums, c;
  Matrix out;
  double beta = 0.0;
  Epilogue epilogue;
  LineScales row_scales, column_scales;

  EpiloguePass transposed() const {
    EpiloguePass t = *this;
    t.m = n, t.n = m;
    t.sums = sums.transposed(), t.c = c.transposed(), t.out = out.transposed();
    t.epilogue = epilogue.transposed();
    std::swap(t.row_scales, t.column_scales);
    return t;
  }
};

// The problem without its epilogue and c.
inline GemmProblem sums_of(const GemmProblem& p) {
  GemmProblem q = p;
  q.c = {}, q.beta = 0.0, q.epilogue = {};
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
          p.epilogue};
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
