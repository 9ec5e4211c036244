// The launchers of the vendor libraries, for the rows of table.cpp.
#pragma once

#include <string>

#include "core/context.h"

namespace fastgemm {

// cuBLASLt's heuristics name several algorithms for a problem, the one they expect to be fastest first. Each
// is a row of its own, so that tuning can find the others where the expectation is wrong.
inline constexpr int kCublasLtCandidates = 4;
void cublaslt(const GemmProblem&, Context&, int candidate);
const char* cublaslt_rejects(const GemmProblem&, int candidate);  // null: it takes the problem
const char* cublaslt_unavailable();

// "13.0.2": the version that torch has loaded; "none" without one.
std::string cublas_version();

// C = alpha op(A) + beta op(B) with alpha 1, beta 0.
void cublas_geam(const TransposeProblem&, Context&);
const char* cublas_unavailable();

}  // namespace fastgemm
