// Integer products that are computed as products of other types.
#pragma once

#include "torch/product.h"

namespace fastgemm::torch_ops {

// The scale (alpha or beta) of a product or sum of this type. For floating-point types it is the value given.
// Integer results wrap, so for 32 bits or fewer it is reduced modulo 2^32. Throws std::invalid_argument if an
// integer scale is not a whole number or does not fit in int64.
double scale_of(const char* name, double given, DType type);

// bool operands are read as uint8, in the same memory: an element of the product is the number of k at which
// both operands are true.
bool has_bool(const ProductCall&);
ProductCall as_bytes(const ProductCall&);

// Computes a product like multiply(), for a type that none of the allowed kernels supports. The operands are
// widened:
//   uint8 with int8             both become int16, which holds every value of either; the result is int32
//   int16 with sums of 64 bits  both become int64; the result is int64
// Widening is one pass over each operand, to 2 or 8 bytes per element.
AtenTensorHandle multiply_widened(const ProductCall&, DType product, const Symmetry& of_result);

}  // namespace fastgemm::torch_ops
