#include "torch/views.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "torch/hooks.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

struct ByteRange {
  uintptr_t begin, end;
};
ByteRange bytes_of(const View& v) {
  const auto size = int64_t(aoti_torch_dtype_element_size(v.dtype));
  int64_t last = 0;
  for (int64_t d = 0; d < v.dim; ++d) {
    if (v.sizes[d] == 0) return {0, 0};
    last += (v.sizes[d] - 1) * v.strides[d];
  }
  const auto begin = reinterpret_cast<uintptr_t>(v.data);
  return {begin, begin + uintptr_t((last + 1) * size)};
}

// Whether two row-major blocks with the same leading dimension certainly share no element: their columns,
// modulo the leading dimension, do not overlap.
bool disjoint_columns(const View& x, const View& y) {
  if (x.dim != 2 || y.dim != 2 || x.strides[1] != 1 || y.strides[1] != 1 || x.strides[0] != y.strides[0])
    return false;
  const int64_t ld = x.strides[0], size = int64_t(aoti_torch_dtype_element_size(x.dtype));
  const auto bytes = reinterpret_cast<intptr_t>(y.data) - reinterpret_cast<intptr_t>(x.data);
  if (x.dtype != y.dtype || bytes % size != 0 || ld <= 0) return false;
  const int64_t shift = ((bytes / size) % ld + ld) % ld;
  return x.sizes[1] <= shift && shift + y.sizes[1] <= ld;
}

}  // namespace

void bad_value(const std::string& text) { throw std::invalid_argument("fastgemm: " + text); }

View::View(const Tensor& t) {
  const AtenTensorHandle h = t.get();
  int64_t *size, *stride;
  check(aoti_torch_get_data_ptr(h, &data), "get_data_ptr");
  check(aoti_torch_get_dim(h, &dim), "get_dim");
  check(aoti_torch_get_sizes(h, &size), "get_sizes");
  check(aoti_torch_get_strides(h, &stride), "get_strides");
  check(aoti_torch_get_dtype(h, &dtype), "get_dtype");
  check(aoti_torch_get_device_type(h, &device_type), "get_device_type");
  check(aoti_torch_get_device_index(h, &device_index), "get_device_index");
  sizes = size, strides = stride;
  require_dimensions(dim);
}

void require_dimensions(int64_t dim) {
  if (dim > kMaxDims)
    bad_value("a tensor has " + std::to_string(dim) + " dimensions; at most " + std::to_string(kMaxDims) +
              " are supported");
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string dtype_text(int32_t dtype) {
  constexpr const char* names[] = {"uint8",           "int8",
                                   "int16",           "int32",
                                   "int64",           "float16",
                                   "float32",         "float64",
                                   "complex32",       "complex64",
                                   "complex128",      "bool",
                                   "qint8",           "quint8",
                                   "qint32",          "bfloat16",
                                   "quint4x2",        "quint2x4",
                                   "bits1x8",         "bits2x4",
                                   "bits4x2",         "bits8",
                                   "bits16",          "float8_e5m2",
                                   "float8_e4m3fn",   "float8_e5m2fnuz",
                                   "float8_e4m3fnuz", "uint16",
                                   "uint32",          "uint64"};
  if (dtype >= 0 && dtype < int32_t(std::size(names))) return std::string("torch.") + names[dtype];
  if (dtype == kFloat8E8M0) return "torch.float8_e8m0fnu";
  return "torch dtype number " + std::to_string(dtype);
}

std::string number_text(double x) {
  std::array<char, 32> text;  // the shortest text that reads back as x has at most 24 characters
  return {text.data(), std::to_chars(text.begin(), text.end(), x).ptr};
}

DType arithmetic_type(const char* argument, int32_t dtype) {
  switch (dtype) {
    case kDouble:
      return DType::f64;
    case kFloat:
      return DType::f32;
    case kHalf:
      return DType::f16;
    case kBFloat16:
      return DType::bf16;
    case kInt8:
      return DType::i8;
    case kInt32:
      return DType::i32;
    case kInt64:
      return DType::i64;
    case kUInt8:
      return DType::u8;
    case kInt16:
      return DType::i16;
    default:
      bad_value(std::string(argument) + " has dtype " + dtype_text(dtype) +
                "; accepted are float64, float32, float16, bfloat16, complex128, complex64, complex32, int8, "
                "int32, int64, uint8 and int16");
  }
}

int32_t torch_dtype(DType t) {
  constexpr int32_t codes[] = {kDouble, kFloat, kHalf, kBFloat16, kInt8, kInt32, kInt64, kUInt8, kInt16};
  return codes[static_cast<int>(t)];
}

double scale_of(const char* name, double given, DType type) {
  if (!is_integer(type)) return given;
  if (given != std::nearbyint(given) || given < -0x1p63 || given >= 0x1p63)
    bad_value(std::string(name) + " must be a whole number of 64 bits for integer operands, got " +
              number_text(given));
  return element_size(result_type(type)) == 8 ? given : double(int32_t(int64_t(given)));
}

void Loops::push(const Dim& inner) {
  if (inner.size == 1) return;
  if (count > 0) {
    Dim& outer = dims[size_t(count - 1)];
    bool one_walk = true;
    for (size_t i = 0; i < 4; ++i) one_walk &= outer.stride[i] == inner.stride[i] * inner.size;
    if (one_walk) {
      outer.size *= inner.size;
      outer.stride = inner.stride;
      return;
    }
  }
  dims[size_t(count++)] = inner;
}

void require_same_device(const char* name, const View& v, const char* first_name, const View& first) {
  if (v.device_type == first.device_type && v.device_index == first.device_index) return;
  bad_value(std::string(name) + " is on another device than " + first_name +
            "; all tensors must be on the same one");
}

bool same_view(const View& x, const View& y) {
  return x.data == y.data && x.dtype == y.dtype && std::ranges::equal(x.shape(), y.shape()) &&
         std::equal(x.strides, x.strides + x.dim, y.strides);
}

bool may_overlap(const View& out, const View& in) {
  const ByteRange a = bytes_of(out), b = bytes_of(in);
  if (a.end <= b.begin || b.end <= a.begin) return false;
  return !disjoint_columns(out, in) && !disjoint_columns(in, out);
}

void require_no_overlap(const View& out, const char* name, const View& in, const char* out_name) {
  if (may_overlap(out, in))
    bad_value(std::string(out_name) + " overlaps " + name + " in memory; pass a separate tensor");
}

void require_out(const View& out, std::span<const int64_t> shape, int32_t dtype, const char* name) {
  if (!std::ranges::equal(out.shape(), shape))
    bad_value(std::string(name) + " has shape " + shape_text(out.shape()) + ", expected " +
              shape_text(shape));
  if (out.dtype != dtype)
    bad_value(std::string(name) + " has dtype " + dtype_text(out.dtype) + ", expected " + dtype_text(dtype));
  // Sorted by stride, each stride must be larger than the extent of all smaller dimensions together.
  std::array<int64_t, kMaxDims> order;
  int n = 0;
  for (int64_t d = 0; d < out.dim; ++d) {
    if (out.sizes[d] == 0) return;
    if (out.sizes[d] > 1) order[size_t(n++)] = d;
  }
  std::sort(order.begin(), order.begin() + n,
            [&](int64_t x, int64_t y) { return out.strides[x] < out.strides[y]; });
  int64_t covered = 1;
  for (int i = 0; i < n; ++i) {
    const int64_t d = order[size_t(i)];
    if (out.strides[d] < covered)
      bad_value(std::string(name) + " has elements that share memory (an expanded tensor?)");
    covered = out.strides[d] * (out.sizes[d] - 1) + covered;
  }
}

namespace {
Hooks hooks;  // set before any product, or by a thread that holds Python's interpreter lock
}  // namespace

void set_hooks(const Hooks& given) { hooks = given; }

bool is_conjugated(AtenTensorHandle t) { return hooks.is_conjugated && hooks.is_conjugated(t); }

void throw_value_error(const char* text) {
  if (hooks.throw_value_error) hooks.throw_value_error(text);
}

AtenTensorHandle empty_tensor(const View& v) {
  if (hooks.empty) return hooks.empty(v);
  AtenTensorHandle handle;
  check(aoti_torch_empty_strided(v.dim, v.sizes, v.strides, v.dtype, v.device_type, v.device_index, &handle),
        "empty_strided (out of memory?)");
  return handle;
}

Tensor empty_contiguous(std::span<const int64_t> shape, int32_t dtype, const View& like) {
  std::array<int64_t, kMaxDims> strides;
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<int64_t>(shape[d], 1);
  }
  View v = like;
  v.sizes = shape.data(), v.strides = strides.data(), v.dim = int64_t(shape.size());
  v.dtype = dtype;
  return Tensor(empty_tensor(v));
}

ContiguousMatrices::ContiguousMatrices(const View& v) {
  int64_t step = 1;
  for (int64_t d = v.dim; d-- > 0;) {
    const auto i = size_t(d);
    const bool repeats = d + 2 < v.dim && v.strides[d] == 0 && v.sizes[d] != 0;
    kept[i] = repeats ? 1 : v.sizes[d];
    strides[i] = repeats ? 0 : step;
    step *= std::max<int64_t>(kept[i], 1);
  }
}

namespace {
Tensor reshaped(AtenTensorHandle t, const View& v, const int64_t* sizes, const int64_t* strides) {
  AtenTensorHandle handle;
  check(aoti_torch__reinterpret_tensor(t, v.dim, sizes, strides, 0, &handle), "_reinterpret_tensor");
  return Tensor(handle);
}
}  // namespace

Tensor contiguous_matrices(AtenTensorHandle from, const View& view) {
  return contiguous_matrices(from, view, view.dtype);
}

Tensor contiguous_matrices(AtenTensorHandle from, const View& view, int32_t dtype) {
  const ContiguousMatrices plan(view);
  const Tensor copy = empty_contiguous({plan.kept.data(), size_t(view.dim)}, dtype, view);
  const bool repeats = !std::equal(view.sizes, view.sizes + view.dim, plan.kept.begin());
  std::optional<Tensor> once;
  if (repeats) once.emplace(reshaped(from, view, plan.kept.data(), view.strides));
  check(aoti_torch_copy_(copy.get(), once ? once->get() : from, 0), "copy_");
  return repeats ? reshaped(copy.get(), view, view.sizes, plan.strides.data()) : copy;
}

}  // namespace fastgemm::torch_ops
