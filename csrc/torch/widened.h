// Matrices of 8-bit floating-point numbers in a wider type, for products by kernels that take no codes.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "core/passes.h"
#include "torch/context.h"
#include "torch/fp8_arguments.h"

namespace fastgemm::torch_ops {

// An operand of the product: codes, each times its scale if `scaled`, as a tensor of a wider type. Rows in
// memory remain rows in memory.
class [[gnu::visibility("hidden")]] Widened {
 public:
  Widened(const Fp8Operand& x, DType type, bool scaled) : tensor_(make(x, type)) {
    const View v(tensor_);
    const int64_t batch = v.dim == 3 ? v.size(3) : 1;
    with_context(v, [&](Context& context, Device device, int) {
      for (int64_t i = 0; i < batch; ++i) {
        WidenFp8 g = x.codes_of(i, scaled);
        g.type = type, g.out_row_stride = pitch_;
        g.out = static_cast<char*>(v.data) + i * g.rows * pitch_ * element_size(type);
        if (g.rows > 0 && g.cols > 0) passes_of(device).widen_fp8(g, context);
      }
    });
  }
  const Tensor& tensor() const { return tensor_; }

 private:
  // Rows begin at multiples of 16 numbers, so that kernels and the pass may read vectors.
  Tensor make(const Fp8Operand& x, DType type) {
    const View& v = x.view();
    const WidenFp8 g = x.codes_of(0, false);
    pitch_ = (g.cols + 15) / 16 * 16;
    const int64_t batch = v.dim == 3 ? v.size(3) : 1;
    const Tensor memory = empty_contiguous(std::array{batch, g.rows, pitch_}, torch_dtype(type), v);
    std::vector<int64_t> strides(size_t(v.dim), g.rows * pitch_);
    strides[size_t(v.dim - 2)] = x.lies_in_columns() ? 1 : pitch_;
    strides[size_t(v.dim - 1)] = x.lies_in_columns() ? pitch_ : 1;
    AtenTensorHandle handle;
    check(aoti_torch__reinterpret_tensor(memory.get(), v.dim, v.sizes, strides.data(), 0, &handle),
          "_reinterpret_tensor");
    return Tensor(handle);
  }

  int64_t pitch_ = 0;
  Tensor tensor_;
};

}  // namespace fastgemm::torch_ops
