// Products of contiguous matrices and of their transposed views. The measured points are such products.
#pragma once

#include "core/problem.h"

namespace fastgemm {

struct Sizes {
  int64_t batch, m, n, k;
};

inline GemmProblem contiguous_product(const Sizes& s, bool a_transposed, bool b_transposed, DType type) {
  const auto stride = [&](int64_t elements) { return s.batch > 1 ? elements : 0; };
  GemmProblem p;
  p.type = type, p.out_type = result_type(type);
  p.batch = s.batch, p.m = s.m, p.n = s.n, p.k = s.k;
  p.a = {nullptr, a_transposed ? 1 : s.k, a_transposed ? s.m : 1, stride(s.m * s.k)};
  p.b = {nullptr, b_transposed ? 1 : s.n, b_transposed ? s.k : 1, stride(s.k * s.n)};
  p.out = {nullptr, s.n, 1, stride(s.m * s.n)};
  return p;
}

}  // namespace fastgemm
