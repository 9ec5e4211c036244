// A product, as Python describes it for predictions.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "core/problem.h"
#include "python/parse.h"

namespace fastgemm {

// (dtype, precision, batch, m, n, k, a_transposed, b_transposed); the matrices are contiguous.
using Problem = std::tuple<std::string, std::string, int64_t, int64_t, int64_t, int64_t, bool, bool>;

inline GemmProblem to_problem(const Problem& t) {
  const auto& [type, precision, batch, m, n, k, a_transposed, b_transposed] = t;
  const auto stride = [&, batch = batch](int64_t elements) { return batch > 1 ? elements : 0; };
  GemmProblem p;
  p.type = parse<DType>(type, kArithmeticTypes, "dtype"),
  p.precision = parse<Precision>(precision, kPrecisions, "precision");
  p.out_type = result_type(p.type);
  p.batch = batch, p.m = m, p.n = n, p.k = k;
  p.a = {nullptr, a_transposed ? 1 : k, a_transposed ? m : 1, stride(m * k)};
  p.b = {nullptr, b_transposed ? 1 : n, b_transposed ? k : 1, stride(k * n)};
  p.out = {nullptr, n, 1, stride(m * n)};
  return p;
}

}  // namespace fastgemm
