// Complex products. Those that no row of the table takes as they are become real ones of twice the width: for
// every level and device at once.
#pragma once

#include "torch/product.h"

namespace fastgemm::torch_ops {

// Whether a torch dtype is complex32, complex64 or complex128, and the dtype of its two parts.
bool is_complex(int32_t dtype);
int32_t part_dtype(int32_t dtype);

// What multiply() does with complex operands. Where no row of complex_rows.h takes the product, it is one of
// real matrices. A complex row (re, im, re, im, ...) of A is a real row of twice the length. Each row b of B
// becomes two, b and i b, so that
//
//   (ar, ai) (  br  bi )
//            ( -bi  br )  =  (ar br - ai bi, ar bi + ai br),
//
// the row of the complex result. A, c and the result are read and written in place; B is copied once, into
// twice its size. The real product has as many operations as four of the parts, and one sum for each part of
// a result, so that errors are bounded as those of a real product with 2 K terms are.
AtenTensorHandle multiply_complex(const ProductCall&);

}  // namespace fastgemm::torch_ops
