// Conversions between torch's tensors and those that the op library takes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <memory>

#include "torch/product.h"

namespace fastgemm::override {

// The C shim's handles are pointers to tensors (torch/csrc/inductor/aoti_torch/utils.h).
inline AtenTensorHandle handle_of(const at::Tensor& t) {
  return reinterpret_cast<AtenTensorHandle>(const_cast<at::Tensor*>(&t));
}

// Takes over a handle that the caller owns.
inline at::Tensor take(AtenTensorHandle handle) {
  const std::unique_ptr<at::Tensor> owned(reinterpret_cast<at::Tensor*>(handle));
  return std::move(*owned);
}

inline torch_ops::TensorRef ref_of(const at::Tensor& t, void* data) {
  torch_ops::TensorRef r{handle_of(t), {}};
  torch_ops::View& v = r.view;
  v.data = data;
  v.sizes = t.sizes().data(), v.strides = t.strides().data();
  v.dim = t.dim();
  torch_ops::require_dimensions(v.dim);
  v.dtype = int32_t(t.scalar_type());
  v.device_type = int32_t(t.device().type()), v.device_index = int32_t(t.device().index());
  return r;
}
// An operand that is only read. const_data_ptr() keeps the memory of a lazy copy shared.
inline torch_ops::TensorRef read(const at::Tensor& t) {
  return ref_of(t, const_cast<void*>(t.const_data_ptr()));
}
inline torch_ops::TensorRef written(const at::Tensor& t) { return ref_of(t, t.mutable_data_ptr()); }

// Calls body(); throws torch's own error if memory runs out.
template <class Body>
auto with_memory_errors(const Body& body) {
  try {
    return body();
  } catch (const torch_ops::OutOfMemory& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  }
}

inline AtenTensorHandle product_of(const torch_ops::ProductCall& call) {
  return with_memory_errors([&] { return torch_ops::multiply(call); });
}

}  // namespace fastgemm::override
