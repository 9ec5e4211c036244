// Rows of the kernel table that take complex matrices as they are: torch's, and where `complex` says so those
// of this library. The others multiply real matrices of twice the width (complex.h).
#pragma once

#include "torch/gemm_plan.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

// The row that computes a complex product as it is: which the call names, or which is expected to be the
// fastest. Null where there is none. The shapes are those that `g` describes, in complex elements. Throws
// CannotRun where a call names torch, and torch cannot; and what select() throws.
const Kernel* row_for(const ProductCall&, const Gemm& g);

// Computes it into out, or, and then it returns true, the lower triangle of a symmetric result. c: empty
// where it is not read; neither it nor out is a conjugated view. Throws TorchError, since what torch refuses
// nothing else computes, and OutOfWorkspace before anything is written.
bool multiply_by_row(const Kernel&, const ProductCall&, Gemm g, const TensorRef& c, const TensorRef& out);

}  // namespace fastgemm::torch_ops
