// Turns the shapes and strides of operands into one matrix product or a batch of products.
#pragma once

#include <optional>

#include "torch/views.h"

namespace fastgemm::torch_ops {

// A gemm whose operands were checked. Shapes are those after trans_a and trans_b.
struct Gemm {
  GemmProblem problem;  // everything but the batch
  Loops loops;          // batch dimensions; operands a, b, c, out
  std::array<int64_t, kMaxDims> shape;
  size_t dim;

  std::span<const int64_t> result_shape() const { return {shape.data(), dim}; }
  // The product over the innermost batch dimension, which one launch computes. The other batch dimensions are
  // loops around it.
  GemmProblem innermost() const;
};

// Fills in type, sizes and operands of a product. Throws std::invalid_argument if the types or inner sizes of
// a and b do not fit each other.
Gemm describe(const View& a, const View& b, bool trans_a, bool trans_b);

// The type of the result of a product of this type; `asked`: the torch dtype that the caller names, if any.
// Throws std::invalid_argument if there is no such result.
DType result_type_of(DType, const std::optional<int32_t>& asked);
// i16i64 instead of i16 if int64 sums are wanted.
DType with_sums(DType, const std::optional<int32_t>& asked);
// The type of the product a @ b, for a result of the dtype that the caller names, if any.
DType type_of_product(const View& a, const View& b, const std::optional<int32_t>& asked);
// If no allowed kernel takes the type of a product, its operands are widened, by one pass over each: to
// int16, which holds every value of uint8 and of int8, or to int64 if int16 is summed in 64 bits.
inline DType widened(DType product) { return product == DType::i16i64 ? DType::i64 : DType::i16; }
// Throws std::invalid_argument if products of this type have no such precision.
void check_precision(Precision, DType);
// The torch dtype of the result of a @ b. Throws std::invalid_argument if the types do not fit each other.
int32_t result_dtype(const View& a, const View& b, const std::optional<int32_t>& asked);

// c has out_type, and the shape of the result or one that broadcasts to it, such as a bias row.
void add_c(Gemm&, const View& c, const View& a);

// As in BLAS, beta = 0 means that c is not read, and alpha = 0 that a and b are not: a NaN in them has no
// effect.
void set_scales(GemmProblem&, double alpha, double beta);

// c: null if none is read.
void plan_batches(Gemm&, const View& a, const View& b, const View* c, const View& out);

// Whether neither stride of a matrix is 1. Such operands are copied first.
bool is_scattered(const ConstMatrix&, int64_t rows, int64_t cols);

}  // namespace fastgemm::torch_ops
