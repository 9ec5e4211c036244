#include "torch/operand_copy.h"

#include <algorithm>
#include <utility>

namespace fastgemm::torch_ops {
namespace {

bool in_columns(const View& v) { return v.dim >= 2 && v.stride(1) != 1 && v.stride(2) == 1; }

// The same memory, with the last two dimensions exchanged.
struct Exchanged {
  std::array<int64_t, kMaxDims> sizes, strides;
  View view;

  explicit Exchanged(const View& v) : view(v) {
    std::copy_n(v.sizes, v.dim, sizes.begin()), std::copy_n(v.strides, v.dim, strides.begin());
    const auto last = size_t(v.dim - 1);
    std::swap(sizes[last - 1], sizes[last]), std::swap(strides[last - 1], strides[last]);
    view.sizes = sizes.data(), view.strides = strides.data();
  }
  Exchanged(const Exchanged&) = delete;
};

Tensor reinterpreted(AtenTensorHandle t, const View& v) {
  AtenTensorHandle handle;
  check(aoti_torch__reinterpret_tensor(t, v.dim, v.sizes, v.strides, 0, &handle), "_reinterpret_tensor");
  return Tensor(handle);
}

}  // namespace

View PlannedCopy::of(const View& v, bool in_rows) {
  const Exchanged columns(v);
  const bool exchanges = in_columns(v) && !in_rows;
  strides_ = ContiguousMatrices(exchanges ? columns.view : v).strides;
  if (exchanges) std::swap(strides_[size_t(v.dim - 2)], strides_[size_t(v.dim - 1)]);
  View copy = v;
  copy.data = nullptr, copy.strides = strides_.data();
  return copy;
}

const TensorRef& OperandCopy::make(const TensorRef& from, int32_t dtype, bool in_rows) {
  if (in_columns(from.view) && !in_rows) {
    const Tensor columns = reinterpreted(from.tensor, Exchanged(from.view).view);
    const Tensor rows = contiguous_matrices(columns.get(), View(columns), dtype);
    tensor_.emplace(reinterpreted(rows.get(), Exchanged(View(rows)).view));
  } else {
    tensor_.emplace(contiguous_matrices(from.tensor, from.view, dtype));
  }
  return ref_ = viewed(*tensor_);
}

}  // namespace fastgemm::torch_ops
