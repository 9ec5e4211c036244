// Turns the shapes and strides of a call's operands into one matrix product or a batch of them.
#pragma once

#include "torch/views.h"

namespace fastgemm::torch_ops {

// A gemm whose operands were checked. Shapes are those after trans_a and trans_b.
struct Gemm {
  GemmProblem problem;  // everything but the batch
  Loops loops;          // batch dimensions; operands a, b, c, out
  std::array<int64_t, kMaxDims> shape;
  size_t dim;

  std::span<const int64_t> result_shape() const { return {shape.data(), dim}; }
  // The product over the innermost batch dimension, which one
  // kernel computes; loops run over those further out.
  GemmProblem innermost() const;
};

// Fills in type, sizes and operands of a product. Throws std::invalid_argument where the types or inner sizes
// of a and b differ.
Gemm describe(const View& a, const View& b, bool trans_a, bool trans_b);

// c may have the result's shape or any shape that broadcasts to it (a bias row, say), and has out_type.
void add_c(Gemm&, const View& c, const View& a);

// With beta = 0 c is not read, and with alpha = 0, as in BLAS,
// neither are a and b: a NaN in them does not count.
void set_scales(GemmProblem&, double alpha, double beta);

// c: null where none is read.
void plan_batches(Gemm&, const View& a, const View& b, const View* c, const View& out);

// Whether a matrix has a unit stride along neither side; such operands are copied first.
bool is_scattered(const ConstMatrix&, int64_t rows, int64_t cols);

}  // namespace fastgemm::torch_ops
