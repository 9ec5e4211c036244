#include "torch/integers.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

// The same memory, with the last two dimensions exchanged.
Tensor exchanged(AtenTensorHandle t, const View& v) {
  std::array<int64_t, kMaxDims> sizes, strides;
  std::copy_n(v.sizes, v.dim, sizes.begin()), std::copy_n(v.strides, v.dim, strides.begin());
  const auto last = size_t(v.dim - 1);
  std::swap(sizes[last - 1], sizes[last]), std::swap(strides[last - 1], strides[last]);
  AtenTensorHandle handle;
  check(aoti_torch__reinterpret_tensor(t, v.dim, sizes.data(), strides.data(), 0, &handle),
        "_reinterpret_tensor");
  return Tensor(handle);
}

// A copy of another type, in rows or columns as the operand lies.
Tensor converted(const TensorRef& from, int32_t dtype) {
  const View& v = from.view;
  if (v.dim >= 2 && v.stride(1) != 1 && v.stride(2) == 1) {
    const Tensor columns = exchanged(from.tensor, v);
    const Tensor copy = contiguous_matrices(columns.get(), View(columns), dtype);
    return exchanged(copy.get(), View(copy));
  }
  return contiguous_matrices(from.tensor, v, dtype);
}

AtenTensorHandle multiply_widened(const ProductCall& call, int32_t dtype, int32_t out_dtype) {
  if (call.out) {
    require_no_overlap(call.out.view, "a", call.a.view), require_no_overlap(call.out.view, "b", call.b.view);
  }
  const Tensor a = converted(call.a, dtype), b = converted(call.b, dtype);
  ProductCall wide = call;
  wide.a = viewed(a), wide.b = viewed(b);
  wide.out_dtype = out_dtype;
  return multiply(wide);
}

}  // namespace

std::optional<AtenTensorHandle> multiply_integers(const ProductCall& given) {
  if (given.a.view.dtype == given.b.view.dtype && given.a.view.dtype != kInt16 && given.a.view.dtype != kBool)
    return std::nullopt;
  ProductCall call = given;
  int32_t &a = call.a.view.dtype, &b = call.b.view.dtype;
  const bool has_bool = a == kBool || b == kBool;
  if (a == kBool) a = kUInt8;
  if (b == kBool) b = kUInt8;
  if ((a == kUInt8 && b == kInt8) || (a == kInt8 && b == kUInt8)) {
    if (call.out_dtype.value_or(kInt32) != kInt32)
      throw std::invalid_argument("fastgemm.gemm: out_dtype=" + dtype_text(*call.out_dtype) +
                                  " is not available for uint8 with int8 operands; accepted: torch.int32");
    return multiply_widened(call, kInt16, kInt32);
  }
  if (a == kInt16 && b == kInt16 && call.out_dtype.value_or(kInt64) == kInt64)
    return multiply_widened(call, kInt64, kInt64);
  if (has_bool && a == b) return multiply(call);
  return std::nullopt;
}

}  // namespace fastgemm::torch_ops
