// Results that equal their transposes: what is known of a call's, and their upper triangle.
#pragma once

#include "core/mirror.h"
#include "core/table.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

inline constexpr std::string_view kSymmetric = "symmetric";  // the rows that compute one triangle

// Whether b is a's transpose, in the same memory. Says nothing of conjugated views.
bool is_own_transpose(const ProductCall&);

// What the caller promises, or where the choice is left to the library what the operands' memory tells.
// Throws std::invalid_argument for a promise that cannot hold. `p` is the product of the call, out included.
Symmetry symmetry_of(const ProductCall& call, const GemmProblem& p);

// Whether a result has to be computed elsewhere and copied: no kernel writes matrices without a unit stride,
// and the one triangle of a c that counts is by columns the other one.
bool needs_own_result(const GemmProblem&);

void mirror_on(Device, const Mirror&, Context&);

// Copies the lower triangle of each matrix, which has contiguous rows, to its upper one.
void mirror_result(const View& out, const Symmetry&, Device, Context&);

}  // namespace fastgemm::torch_ops
