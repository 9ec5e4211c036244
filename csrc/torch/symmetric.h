// Symmetric results: finds out whether a result is symmetric, and fills its upper triangle.
#pragma once

#include "core/table.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

inline constexpr std::string_view kSymmetric = "symmetric";  // the rows that compute one triangle

// Whether op(b) is the transpose of op(a), in the same memory. It does not consider conjugated views.
bool is_own_transpose(const ProductCall&);

// The symmetry that the caller promises. Without a promise, checks whether b is a's transpose, unless the
// caller named another kernel or a level. Throws std::invalid_argument if the promise cannot be true. `p` is
// the product of the call, including out.
Symmetry symmetry_of(const ProductCall& call, const GemmProblem& p);

// Whether the result must be computed in other memory and then copied. This is so if out has no unit stride,
// because no kernel writes such matrices. It is also so for a column-major result that must be exactly
// symmetric: if the product were transposed, it would use the other triangle of c.
bool needs_own_result(const GemmProblem&);

// Copies the lower triangle of each matrix to its upper one. Rows must be contiguous.
void mirror_result(const View& out, const Symmetry&, Device, Context&);

}  // namespace fastgemm::torch_ops
