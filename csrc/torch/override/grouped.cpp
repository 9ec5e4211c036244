#include "torch/override/grouped.h"

#include <algorithm>

#include "torch/grouped_mm.h"
#include "torch/override/convert.h"
#include "torch/override/route.h"

namespace fastgemm::override {
namespace {

constexpr int64_t kAlignment = 16;  // bytes: torch's kernels need it, and align the rows of results to it

bool is_multiple(int64_t elements, const at::Tensor& t) {
  return elements * int64_t(t.element_size()) % kAlignment == 0;
}

// Whether torch takes the matrices of a tensor: contiguous rows or columns that begin at multiples of 16
// bytes. On a GPU the address must be such a multiple, too.
bool is_aligned(const at::Tensor& t) {
  if (t.is_cuda() && reinterpret_cast<uintptr_t>(t.const_data_ptr()) % kAlignment != 0) return false;
  const int64_t rows = t.size(-2), cols = t.size(-1), row = t.stride(-2), col = t.stride(-1);
  if (row == 1 && col >= std::max<int64_t>(rows, 1)) return is_multiple(col, t);
  return col == 1 && row >= std::max<int64_t>(cols, 1) && is_multiple(row, t);
}

std::optional<at::ScalarType> out_dtype_at(const Product& op, Arguments arguments) {
  return arguments[size_t(op.out_dtype)].toOptional<at::ScalarType>();
}

// An operand as float32 if it has 16 bits and the other one is float32: torch's formula of the gradient
// multiplies the float32 gradient of a wide result by an operand of the product.
at::Tensor as_wide_as(const at::Tensor& other, const at::Tensor& t) {
  const at::ScalarType type = t.scalar_type();
  const bool narrow = type == at::kBFloat16 || type == at::kHalf;
  return narrow && other.scalar_type() == at::kFloat ? t.to(at::kFloat) : t;
}

// The reason why torch itself refuses operands that fastgemm takes.
std::optional<std::string> refusal(const Product& op, Arguments arguments) {
  const at::Tensor &a = tensor_at(arguments, op.a), &b = tensor_at(arguments, op.b);
  const at::ScalarType type = a.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) return "dtype " + name_of(type);
  if (b.scalar_type() != type) return "operands of different types";
  if (!arguments[size_t(op.bias)].isNone()) return "a bias of groups";
  if (out_dtype_at(op, arguments).value_or(type) != type) return "another out_dtype of groups";
  if (!is_aligned(a) || !is_aligned(b)) return "groups that are not aligned to 16 bytes";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_groups_passed_on(const Product& op, Arguments arguments,
                                                const PatchFrame& frame) {
  for (const int i : {op.a, op.b}) {
    const at::Tensor& t = tensor_at(arguments, i);
    if (auto why = why_not(t, frame.extends)) return why;
    if (t.dim() != 2 && t.dim() != 3) return "a tensor of " + std::to_string(t.dim()) + " dimensions";
  }
  if (auto why = refusal(op, arguments)) return frame.extends ? std::nullopt : why;
  if (frame.is_free() &&
      torch_is_faster(read(tensor_at(arguments, op.a)).view, read(tensor_at(arguments, op.b)).view))
    return "torch's kernel is faster for groups of many rows";
  return std::nullopt;
}

at::Tensor compute_groups(const Product& op, Arguments arguments, const PatchFrame& frame) {
  const at::Tensor &given_a = tensor_at(arguments, op.a), &given_b = tensor_at(arguments, op.b);
  const at::Tensor a = as_wide_as(given_b, given_a), b = as_wide_as(given_a, given_b);
  torch_ops::GroupedCall call{.a = read(a), .b = read(b)};
  const auto offs = arguments[size_t(op.offs)].toOptional<at::Tensor>(),
             bias = arguments[size_t(op.bias)].toOptional<at::Tensor>();
  if (offs) call.offs = read(*offs);
  if (bias) call.bias = read(*bias);
  call.choice = {frame.level, frame.kernel};
  call.precision = precision_for(a, frame);
  std::optional<int32_t> out_dtype;
  if (const auto asked = out_dtype_at(op, arguments)) out_dtype = int32_t(*asked);
  // As in torch, rows of the result begin at multiples of 16 bytes.
  return take(with_memory_errors([&] { return torch_ops::multiply_groups(call, out_dtype, kAlignment); }));
}

}  // namespace fastgemm::override
