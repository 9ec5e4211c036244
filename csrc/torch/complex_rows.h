// Rows of the kernel table that compute complex products directly: torch's, and those of this library with
// `complex` set. The other rows multiply real matrices of twice the width (complex.h).
#pragma once

#include "torch/gemm_plan.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

// The row that computes a complex product directly: the one that the call names, or the one that is expected
// to be fastest. Null if there is none. The shapes in `g` count complex elements. Throws CannotRun if the
// call names torch and torch cannot compute it, and what select() throws.
const Kernel* row_for(const ProductCall&, const Gemm& g);

// Computes the product into out. Returns true if it computed only the lower triangle, of a symmetric result.
// c: empty if it is not read. Neither c nor out may be a conjugated view. Throws TorchError if torch fails
// (no other kernel is tried), and OutOfWorkspace before anything is written.
bool multiply_by_row(const Kernel&, const ProductCall&, Gemm g, const TensorRef& c, const TensorRef& out);

}  // namespace fastgemm::torch_ops
