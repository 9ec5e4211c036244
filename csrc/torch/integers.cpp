#include "torch/integers.h"

#include <algorithm>
#include <cmath>
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

// A copy in another type, row-major or column-major as the operand.
Tensor converted(const TensorRef& from, int32_t dtype) {
  const View& v = from.view;
  if (v.dim >= 2 && v.stride(1) != 1 && v.stride(2) == 1) {
    const Tensor columns = exchanged(from.tensor, v);
    const Tensor copy = contiguous_matrices(columns.get(), View(columns), dtype);
    return exchanged(copy.get(), View(copy));
  }
  return contiguous_matrices(from.tensor, v, dtype);
}

}  // namespace

double scale_of(const char* name, double given, DType type) {
  if (!is_integer(type)) return given;
  if (given != std::nearbyint(given) || given < -0x1p63 || given >= 0x1p63)
    bad_value(std::string(name) + " must be a whole number of 64 bits for integer operands, got " +
              number_text(given));
  return element_size(result_type(type)) == 8 ? given : double(int32_t(int64_t(given)));
}

bool has_bool(const ProductCall& call) {
  const auto is_byte = [](int32_t dtype) { return dtype == kBool || dtype == kUInt8 || dtype == kInt8; };
  const int32_t a = call.a.view.dtype, b = call.b.view.dtype;
  return (a == kBool || b == kBool) && is_byte(a) && is_byte(b);
}

ProductCall as_bytes(const ProductCall& given) {
  ProductCall call = given;
  for (TensorRef* operand : {&call.a, &call.b})
    if (operand->view.dtype == kBool) operand->view.dtype = kUInt8;
  return call;
}

AtenTensorHandle multiply_widened(const ProductCall& call, DType product, const Symmetry& symmetry) {
  const bool is_long = product == DType::i16i64;
  const int32_t dtype = is_long ? kInt64 : kInt16;
  const Tensor a = converted(call.a, dtype), b = converted(call.b, dtype);
  ProductCall wide = call;
  wide.a = viewed(a), wide.b = viewed(b);
  wide.out_dtype = is_long ? kInt64 : kInt32;
  wide.symmetry = symmetry;  // the copies hide that both are one matrix
  return multiply(wide);
}

}  // namespace fastgemm::torch_ops
