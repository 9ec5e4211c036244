// A part of a tensor, as a tensor of its own: torch's product and copies of operands need one.
#pragma once

#include <array>
#include <optional>

#include "torch/product.h"

namespace fastgemm::torch_ops {

template <size_t dims>
class [[gnu::visibility("hidden")]] Part {  // as Tensor is
 public:
  using Extents = std::array<int64_t, dims>;

  // Without a tensor, the part is empty, too.
  Part(const TensorRef& whole, int64_t offset, const Extents& sizes, const Extents& strides)
      : sizes_(sizes), strides_(strides) {
    if (!whole) return;
    AtenTensorHandle handle;
    check(aoti_torch__reinterpret_tensor(whole.tensor, int64_t(dims), sizes_.data(), strides_.data(), offset,
                                         &handle),
          "_reinterpret_tensor");
    tensor_.emplace(handle);
    ref_ = {handle, whole.view};
    View& v = ref_.view;
    v.dim = int64_t(dims), v.sizes = sizes_.data(), v.strides = strides_.data();
    check(aoti_torch_get_data_ptr(handle, &v.data), "get_data_ptr");
  }
  Part(const Part&) = delete;
  const TensorRef& ref() const { return ref_; }

 private:
  Extents sizes_, strides_;
  std::optional<Tensor> tensor_;
  TensorRef ref_;
};

inline Part<2> matrix_in(const TensorRef& whole, int64_t offset, int64_t rows, int64_t cols) {
  return {whole, offset, {rows, cols}, {whole.view.stride(2), whole.view.stride(1)}};
}

}  // namespace fastgemm::torch_ops
