// Products of integers that no kernel takes as they are.
#pragma once

#include <optional>

#include "torch/product.h"

namespace fastgemm::torch_ops {

// Computes a call as multiply() does, from operands as a kernel takes them:
//   bool                 is uint8, of the same memory: a product counts the k where both are true
//   uint8 with int8      both as int16, which holds every value of either; the result is int32
//   int16 without out_dtype=torch.int32   as int64, which holds every sum; the result is int64
// Widening is a pass over each operand, into 2 or 8 bytes for each element. None where there is nothing to
// do: the types are a kernel's, or do not go together.
std::optional<AtenTensorHandle> multiply_integers(const ProductCall&);

}  // namespace fastgemm::torch_ops
