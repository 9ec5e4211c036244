// A product, as Python describes it for predictions.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>

#include "core/contiguous_product.h"
#include "python/parse.h"

namespace fastgemm {

// (dtype, precision, batch, m, n, k, a_transposed, b_transposed); the matrices are contiguous.
using Problem = std::tuple<std::string, std::string, int64_t, int64_t, int64_t, int64_t, bool, bool>;

inline GemmProblem to_problem(const Problem& t) {
  const auto& [type, precision, batch, m, n, k, a_transposed, b_transposed] = t;
  for (const int64_t size : {batch, m, n, k})
    if (size < 1) throw std::invalid_argument("sizes are predicted from 1 on, got " + std::to_string(size));
  GemmProblem p = contiguous_product({batch, m, n, k}, a_transposed, b_transposed,
                                     parse<DType>(type, kArithmeticTypes, "dtype"));
  p.precision = parse<Precision>(precision, kPrecisions, "precision");
  return p;
}

}  // namespace fastgemm
