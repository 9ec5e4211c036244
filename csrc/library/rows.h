// The launchers of the vendor libraries, for the rows of table.cpp.
#pragma once

#include <string>

#include "core/context.h"
#include "core/tuning.h"

namespace fastgemm {

// cuBLASLt's heuristics name several algorithms for a problem, the one expected to be fastest first. Each
// candidate is a row of its own, so that tuning can find a faster one if the expectation is wrong.
inline constexpr int kCublasLtCandidates = 4;
void cublaslt(const GemmProblem&, Context&, int candidate);
const char* cublaslt_rejects(const GemmProblem&, int candidate);  // null: it can
const char* cublaslt_unavailable();

// cuBLAS reads int8 matrices in words of 4 bytes, so their addresses must be multiples of 4.
inline bool starts_at_word(const ConstMatrix& m) { return reinterpret_cast<uintptr_t>(m.data) % 4 == 0; }

// Whether c is one contiguous row that is added to every row of the result. Epilogues of libraries can add
// it.
inline bool is_bias_row(const GemmProblem& p) {
  return p.beta == 1.0 && p.c.row_stride == 0 && p.c.batch_stride == 0 && (p.c.col_stride == 1 || p.n == 1);
}

// In cuBLAS 13.1 a 16-bit product may be rounded before its epilogue adds a bias row. This was seen only
// where some rows do not start at a multiple of 16 bytes (docs/precision.md).
inline constexpr const char* kRoundsBeforeBias =
    "cuBLAS may round a 16-bit product before it adds a bias row where rows do not start at multiples of 16 "
    "bytes";
inline bool rounds_before_bias(const GemmProblem& p) {
  const Alignment aligned = alignment_of(p);
  const bool half = p.type == DType::f16 || p.type == DType::bf16;
  return half && p.out_type == p.type && !(aligned.inputs && aligned.out);
}

// "13.0.2": the version that torch has loaded; "none" without one.
std::string cublas_version();

// C = alpha op(A) + beta op(B) with alpha 1, beta 0.
void cublas_geam(const TransposeProblem&, Context&);
const char* cublas_unavailable();

}  // namespace fastgemm
