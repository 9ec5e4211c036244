// Copies of operands before a product: of matrices without a unit stride, and to a wider type. The matrices
// of a copy lie in columns if the operand's do and `in_rows` is false, else in rows. A broadcast batch
// dimension stays broadcast.
#pragma once

#include "torch/product.h"

namespace fastgemm::torch_ops {

// The view that a copy will have, but for its address and type.
class PlannedCopy {
 public:
  View of(const View&, bool in_rows = false);

 private:
  std::array<int64_t, kMaxDims> strides_;
};

class [[gnu::visibility("hidden")]] OperandCopy {  // as Tensor is
 public:
  // The copy lives as long as this object.
  const TensorRef& make(const TensorRef&, int32_t dtype, bool in_rows = false);

 private:
  std::optional<Tensor> tensor_;
  TensorRef ref_;
};

}  // namespace fastgemm::torch_ops
