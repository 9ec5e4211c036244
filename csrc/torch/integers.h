// Products of integers that are computed as those of other types.
#pragma once

#include "torch/product.h"

namespace fastgemm::torch_ops {

// A scale of a product or sum of this type, as given where it is not of integers. Those wrap, so that of 32
// bits and fewer it is taken modulo 2^32. Throws std::invalid_argument for one that is not whole, or beyond
// int64.
double scale_of(const char* name, double given, DType type);

// Operands of bool are uint8, of the same memory: a product counts the k where both are true.
bool has_bool(const ProductCall&);
ProductCall as_bytes(const ProductCall&);

// Computes a product of a type that no kernel takes, of those that may run, as multiply() does:
//   uint8 with int8             from both as int16, which holds every value of either; the result is int32
//   int16 with sums of 64 bits  from both as int64; so is the result
// Widening is a pass over each operand, into 2 or 8 bytes for each element.
AtenTensorHandle multiply_widened(const ProductCall&, DType product, const Symmetry& of_result);

}  // namespace fastgemm::torch_ops
