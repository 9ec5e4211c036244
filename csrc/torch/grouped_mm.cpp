// torch.ops.fastgemm.grouped_mm: products of groups of uneven size, with torch's meaning of offs. A CPU
// multiplies one group after the other, each as a plain product, so every kernel and type serves. A GPU
// computes all groups by one kernel, which reads the ends itself (grouped_gpu.cpp).
#include "torch/grouped_mm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/simulator.h"
#include "torch/choices.h"
#include "torch/complex.h"
#include "torch/gemm_plan.h"
#include "torch/layer.h"
#include "torch/operand_copy.h"
#include "torch/ops.h"
#include "torch/part.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

// The part of the bias for one group, from column `column` on.
Part<1> bias_of(const TensorRef& bias, int64_t group, int64_t column, int64_t cols) {
  if (!bias) return {bias, 0, {cols}, {1}};
  const View& v = bias.view;
  return {bias, column * v.stride(1) + (v.dim == 2 ? group * v.stride(2) : 0), {cols}, {v.stride(1)}};
}

// One product, with the bias and the activation of the call.
void multiply_part(const GroupedCall& call, const TensorRef& a, const TensorRef& b, const TensorRef& bias,
                   const TensorRef& out) {
  ProductCall product{.a = a, .b = b, .out = out};
  product.is_group = call.by != GroupedBy::none;
  product.choice = call.choice, product.precision = call.precision, product.out_dtype = out.view.dtype;
  if (call.activation == Activation::none)
    product.c = bias;
  else
    product.activation = call.activation, product.bias = bias;
  multiply(product);
}

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// The product of group `index`, which covers `range` of the grouped dimension.
void multiply_group(const GroupedCall& call, int64_t index, Range range) {
  const View &a = call.a.view, &b = call.b.view, &out = call.out.view;
  const auto member = [&](const View& v) { return v.dim == 3 ? index * v.stride(3) : 0; };
  int64_t m = a.size(2), n = b.size(1), k = a.size(1);
  int64_t of_a = member(a), of_b = member(b), of_out = member(out), column = 0;
  switch (call.by) {
    case GroupedBy::m:
      m = range.size(), of_a = range.begin * a.stride(2), of_out = range.begin * out.stride(2);
      break;
    case GroupedBy::n:
      n = range.size(), of_b = range.begin * b.stride(1), of_out = column = range.begin;
      break;
    case GroupedBy::k:
      k = range.size(), of_a = range.begin * a.stride(1), of_b = range.begin * b.stride(2);
      break;
    case GroupedBy::none:
      break;
  }
  multiply_part(call, matrix_in(call.a, of_a, m, k).ref(), matrix_in(call.b, of_b, k, n).ref(),
                bias_of(call.bias, index, column, n).ref(), matrix_in(call.out, of_out, m, n).ref());
}

// The size of the dimension that is grouped.
int64_t grouped_size(const GroupedCall& call) {
  return call.by == GroupedBy::m   ? call.a.view.size(2)
         : call.by == GroupedBy::n ? call.b.view.size(1)
                                   : call.a.view.size(1);
}

std::vector<Range> ranges_of(const GroupedCall& call) {
  std::vector<Range> ranges;
  for (int64_t i = 0, begin = 0; i < call.groups; begin = ranges[size_t(i++)].end)
    ranges.push_back({begin, end_of_group(call.offs.view, i, begin, grouped_size(call))});
  return ranges;
}

// Sets the rows or columns of the result that no group has to zero.
void clear_rest(const GroupedCall& call, int64_t end) {
  const View& out = call.out.view;
  if (call.by == GroupedBy::k) return;
  const bool columns = call.by == GroupedBy::n;
  const auto width = int64_t(aoti_torch_dtype_element_size(out.dtype));
  const int64_t first = columns ? 0 : end, column = columns ? end : 0;
  const auto bytes = size_t((out.size(1) - column) * width);
  for (int64_t row = first; bytes > 0 && row < out.size(2); ++row)
    std::memset(static_cast<char*>(out.data) + (row * out.stride(2) + column) * width, 0, bytes);
}

void multiply_groups_on_cpu(const GroupedCall& call) {
  const std::vector<Range> ranges = ranges_of(call);
  // An empty product is checked, too: a wrong level is an error in every case.
  const auto is_needed = [&](size_t i) { return i == 0 || call.by == GroupedBy::k || ranges[i].size() > 0; };
  for (size_t i = 0; i < ranges.size(); ++i)
    if (is_needed(i)) multiply_group(call, int64_t(i), ranges[i]);
  clear_rest(call, ranges.empty() ? 0 : ranges.back().end);
}

// A batch of products of one size.
void multiply_batch(const GroupedCall& call) {
  const bool shares_bias = !call.bias || call.bias.view.dim == 1;
  if (shares_bias) return multiply_part(call, call.a, call.b, call.bias, call.out);
  if (call.activation != Activation::none) {
    for (int64_t i = 0; i < call.groups; ++i) multiply_group(call, i, {});
    return;
  }
  const View& v = call.bias.view;  // as a matrix of one row for each member
  const Part<3> rows(call.bias, 0, {v.size(2), 1, v.size(1)}, {v.stride(2), v.size(1), v.stride(1)});
  multiply_part(call, call.a, call.b, rows.ref(), call.out);
}

GroupedBy grouped_by(const View& a, const View& b) {
  for (const auto& [name, v] : {std::pair("a", &a), std::pair("b", &b)})
    if (v->dim != 2 && v->dim != 3)
      bad_value(std::string(name) + " must have 2 or 3 dimensions, got shape " + shape_text(v->shape()));
  if (a.dim == 2) return b.dim == 2 ? GroupedBy::k : GroupedBy::m;
  return b.dim == 2 ? GroupedBy::n : GroupedBy::none;
}

void check_offs(const GroupedCall& call) {
  const View& offs = call.offs.view;
  if (call.by == GroupedBy::none) {
    if (call.offs) bad_value("a and b of 3 dimensions each are a batch, which takes no offs");
    return;
  }
  if (!call.offs)
    bad_value("offs, the ends of the groups, must be given unless a and b have 3 dimensions each");
  require_same_device("offs", offs, "a", call.a.view);
  if (offs.dim != 1) bad_value("offs must have 1 dimension, got shape " + shape_text(offs.shape()));
  if (offs.dtype != kInt32) bad_value("offs has dtype " + dtype_text(offs.dtype) + ", expected torch.int32");
}

void check_sizes(const GroupedCall& call) {
  const View &a = call.a.view, &b = call.b.view;
  if (a.size(1) != b.size(2))
    bad_value("inner sizes differ: a is " + shape_text(a.shape()) + ", b is " + shape_text(b.shape()));
  for (const auto& [name, v] : {std::pair("a", &a), std::pair("b", &b)})
    if (v->dim == 3 && v->size(3) != call.groups)
      bad_value(std::string(name) + " of shape " + shape_text(v->shape()) + " has " +
                std::to_string(v->size(3)) + " matrices, expected " + std::to_string(call.groups) +
                (call.by == GroupedBy::none ? ", as a" : ", one for each number of offs"));
}

void check_bias(const GroupedCall& call, int32_t result) {
  if (!call.bias) return;
  const View& v = call.bias.view;
  require_same_device("bias", v, "a", call.a.view);
  const int64_t n = call.b.view.size(1);
  const bool of_groups = call.by != GroupedBy::n && v.dim == 2 && v.size(2) == call.groups;
  if ((v.dim != 1 && !of_groups) || v.size(1) != n)
    bad_value("bias has shape " + shape_text(v.shape()) + ", expected " + shape_text(std::array{n}) +
              (call.by == GroupedBy::n ? "" : " or " + shape_text(std::array{call.groups, n})));
  if (v.dtype != result && v.dtype != call.a.view.dtype)
    bad_value("bias has dtype " + dtype_text(v.dtype) + ", expected that of a, " +
              dtype_text(call.a.view.dtype));
}

bool is_on_cpu(const View& v) { return v.device_type == aoti_torch_device_type_cpu() && !simulating(); }

void check_activation(const GroupedCall& call) {
  const int32_t type = call.a.view.dtype;
  const bool is_float = type == kFloat || type == kDouble || type == kHalf || type == kBFloat16;
  if (call.activation != Activation::none && !is_float)
    bad_value("an activation is for floating-point types, got " + dtype_text(type));
}

void check_gates(const GroupedCall& call) {
  if (!call.gated) return;
  if (call.b.view.size(1) % 2 != 0)
    bad_value("activation='swiglu' halves the result, whose size " + std::to_string(call.b.view.size(1)) +
              " is odd");
  if (call.by != GroupedBy::m || is_on_cpu(call.a.view))
    throw CannotRun("a product that applies swiglu has groups of rows, on a GPU");
}

void check_rows(const GroupedCall& call) {
  if (!call.rows) return;
  const View& rows = call.rows.view;
  require_same_device("rows", rows, "a", call.a.view);
  if (rows.dim != 1 || rows.dtype != kInt32 || (rows.size(1) > 1 && rows.stride(1) != 1))
    bad_value("rows must be int32 and contiguous with 1 dimension, got " + dtype_text(rows.dtype) +
              " of shape " + shape_text(rows.shape()));
  if (call.by != GroupedBy::m || is_on_cpu(call.a.view))
    throw CannotRun("rows are gathered by a kernel for groups of rows, on a GPU");
}

// The result, whose rows begin at multiples of `alignment` bytes.
Tensor new_result(const GroupedCall& call, int32_t dtype, int64_t alignment) {
  const int64_t m = call.rows ? call.rows.view.size(1) : call.a.view.size(2);
  const int64_t n = call.b.view.size(1) / (call.gated ? 2 : 1);
  const int64_t step = std::max<int64_t>(alignment / int64_t(aoti_torch_dtype_element_size(dtype)), 1);
  const int64_t pitch = (n + step - 1) / step * step;
  const bool one = call.by == GroupedBy::m || call.by == GroupedBy::n;
  std::array<int64_t, 3> sizes{call.groups, m, pitch};
  const std::span<const int64_t> shape = std::span(sizes).subspan(one ? 1 : 0);
  Tensor padded = empty_contiguous(shape, dtype, call.a.view);
  if (pitch == n) return padded;
  sizes.back() = n;
  AtenTensorHandle rows;
  check(aoti_torch__reinterpret_tensor(padded.get(), int64_t(shape.size()), shape.data(),
                                       View(padded).strides, 0, &rows),
        "_reinterpret_tensor");
  return Tensor(rows);
}

// The operand, or a copy of it if its matrices have no unit stride.
const TensorRef& with_unit_stride(const TensorRef& x, OperandCopy& copy) {
  const View& v = x.view;
  return is_scattered(matrix_of<ConstMatrix>(v, false), v.size(2), v.size(1)) ? copy.make(x, v.dtype) : x;
}

void compute(GroupedCall& call) {
  if (call.by == GroupedBy::none) return multiply_batch(call);
  const bool on_cpu = is_on_cpu(call.a.view);
  if (!on_cpu && is_complex(call.a.view.dtype))
    throw CannotRun("groups of complex numbers are multiplied on a CPU only");
  OperandCopy copy_a, copy_b;
  if (!on_cpu) {
    call.type = type_of_product(call.a.view, call.b.view, call.out.view.dtype);
    check_precision(call.precision.value_or(Precision::ieee), call.type);
  }
  if (!on_cpu && is_product_type(call.type)) {  // no kernel takes groups of these
    call.type = widened(call.type);
    call.a = copy_a.make(call.a, torch_dtype(call.type)),
    call.b = copy_b.make(call.b, torch_dtype(call.type));
  } else {
    call.a = with_unit_stride(call.a, copy_a), call.b = with_unit_stride(call.b, copy_b);
  }
  on_cpu ? multiply_groups_on_cpu(call) : multiply_groups_on_gpu(call);
}

struct Arguments {
  Tensor a, b;
  std::optional<Tensor> offs, bias, rows;
  std::optional<std::string> activation;
  std::optional<int64_t> level;
  std::optional<std::string> kernel;
  bool invariant = false;
  std::optional<std::string> precision;
  std::optional<int32_t> out_dtype;

  // In the order of the schemas in library.cpp; braces evaluate from left to right.
  Arguments(StackReader s, bool gathers)
      : a(s.tensor()),
        b(s.tensor()),
        offs(s.optional_tensor()),
        bias(s.optional_tensor()),
        rows(gathers ? std::optional(s.tensor()) : std::nullopt),
        activation(s.optional_string()),
        level(s.optional_integer()),
        kernel(s.optional_string()),
        invariant(s.flag()),
        precision(s.optional_string()),
        out_dtype(s.optional_dtype()) {}
};

}  // namespace

int64_t end_of_group(const View& offs, int64_t index, int64_t begin, int64_t size) {
  const int64_t end = static_cast<const int32_t*>(offs.data)[index];
  if (end < begin || end > size)
    bad_value("offs must not be negative, not descend and not exceed " + std::to_string(size) + "; offs[" +
              std::to_string(index) + "] is " + std::to_string(end) +
              (index > 0 ? " after " + std::to_string(begin) : ""));
  return end;
}

AtenTensorHandle multiply_groups(GroupedCall call, const std::optional<int32_t>& out_dtype,
                                 int64_t alignment) {
  const View &a = call.a.view, &b = call.b.view;
  call.by = grouped_by(a, b);
  require_same_device("b", b, "a", a);
  check_offs(call);
  call.groups = call.offs ? call.offs.view.size(1) : a.size(3);
  check_sizes(call);
  const int32_t result = result_dtype(a, b, out_dtype);
  check_bias(call, result);
  check_activation(call);
  check_gates(call);
  check_rows(call);
  std::optional<Tensor> bias, offs;
  if (call.bias && call.bias.view.dtype != result)
    bias = contiguous_matrices(call.bias.tensor, call.bias.view, result), call.bias = viewed(*bias);
  if (call.offs && call.groups > 1 && call.offs.view.stride(1) != 1)
    offs = contiguous_matrices(call.offs.tensor, call.offs.view), call.offs = viewed(*offs);
  const Tensor out = new_result(call, result, alignment);
  call.out = viewed(out);
  compute(call);
  return new_handle(out.get());
}

namespace {

void multiply_groups(StableIValue* stack, const Arguments& args) {
  GroupedCall call{.a = viewed(args.a), .b = viewed(args.b)};
  if (args.offs) call.offs = viewed(*args.offs);
  if (args.bias) call.bias = viewed(*args.bias);
  if (args.rows) call.rows = viewed(*args.rows);
  call.gated = args.activation == "swiglu";
  if (!call.gated) call.activation = activation_of(args.activation);
  call.choice = choice_of(args.level, args.kernel);
  if (args.invariant) {
    if (!is_free(call.choice))
      bad_value("invariant=True chooses the kernel; it takes no level and no kernel");
    call.choice = {0, "invariant"};
  }
  call.precision = precision_of(args.precision);
  stack[0] = torch::stable::detail::from(multiply_groups(call, args.out_dtype));
}

}  // namespace

void grouped_mm(StableIValue* stack, uint64_t, uint64_t) {
  multiply_groups(stack, {StackReader(stack), false});
}
void gathered_mm(StableIValue* stack, uint64_t, uint64_t) {
  multiply_groups(stack, {StackReader(stack), true});
}

}  // namespace fastgemm::torch_ops
