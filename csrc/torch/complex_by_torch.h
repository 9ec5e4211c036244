// torch's own complex product, where a call names it or it is expected to be faster than a real product of
// twice the width (complex.h).
#pragma once

#include "torch/gemm_plan.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

// Whether torch computes a complex product: the call says so, or leaves the choice open and torch is
// expected to be faster. The shapes are those that `g` describes, in complex elements. Throws CannotRun where
// a call names torch, and torch cannot.
bool is_for_torch(const ProductCall&, const Gemm& g);

// Computes it into out, or, and then it returns true, the lower triangle of a symmetric result. c: empty
// where it is not read; neither it nor out is a conjugated view. Throws TorchError: what torch refuses
// nothing else computes.
bool multiply_by_torch(const ProductCall&, Gemm g, const TensorRef& c, const TensorRef& out);

}  // namespace fastgemm::torch_ops
