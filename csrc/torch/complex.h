// Complex products. If no row of the table computes a complex product directly, it is computed as a real
// product of twice the width. This works for every level and device.
#pragma once

#include <memory>

#include "torch/gemm_plan.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

// Whether a torch dtype is complex32, complex64 or complex128, and the dtype of its two parts.
bool is_complex(int32_t dtype);
int32_t part_dtype(int32_t dtype);
// Throws std::invalid_argument unless both have one complex type, which is also that of the result.
void require_complex(const View& a, const View& b, const std::optional<int32_t>& out_dtype);

// A complex product. If no row of complex_rows.h computes it, real matrices are multiplied instead. A complex
// row (re, im, re, im, ...) of A is read as a real row of twice the length. Each row b of B becomes two rows,
// b and i b:
//
//   (ar, ai) (  br  bi )
//            ( -bi  br )  =  (ar br - ai bi, ar bi + ai br),
//
// which is the row of the complex result. A, c and the result stay in place; B is copied once, to twice its
// size. The real product has as many operations as four real products of the parts. Each part of a result is
// one sum of 2 K terms, so it has the error bound of a real product with 2 K terms.
class [[gnu::visibility("hidden")]] ComplexProduct {  // as Tensor is
 public:
  explicit ComplexProduct(const ProductCall&);  // throws as multiply() does
  ~ComplexProduct();

  // Computes it by a row that takes complex matrices. Returns false, and writes nothing, if there is none, or
  // if there is too little memory for it.
  bool by_row();
  // The real product that computes it otherwise. Its tensors live as long as this object.
  ProductCall as_real();
  // Once it is computed: a new tensor, or null if the call has an out.
  AtenTensorHandle result();

 private:
  struct Parts;

  bool writes_columns() const;
  void make_result();  // out_ becomes a new tensor

  ProductCall call_;
  Gemm gemm_;
  std::optional<Tensor> resolved_c_, resolved_bias_, made_;
  TensorRef c_, bias_, out_;  // c_: empty if it is not read
  const Kernel* row_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fastgemm::torch_ops
