#include "torch/override/scaled_groups.h"

#include "torch/override/convert.h"
#include "torch/override/scales.h"
#include "torch/scaled_grouped_mm.h"
#include "torch/scaled_mm.h"

namespace fastgemm::override {
namespace {

constexpr int64_t kUnit = 16;  // bytes; lines of codes begin at multiples of it for torch's kernel

// The scales of an operand: an argument of _scaled_grouped_mm, or the only member of a list of its second
// version. None if there are others, of another recipe than that of rows.
std::optional<at::Tensor> row_scales_at(Arguments arguments, int scale, int recipe, int swizzle) {
  const auto& given = arguments[size_t(scale)];
  if (recipe < 0) return given.toTensor();
  const auto scales = given.toTensorVector();
  const auto recipes = arguments[size_t(recipe)].toIntVector();
  if (scales.size() != 1 || recipes.size() != 1 || Recipe(recipes[0]) != Recipe::row) return std::nullopt;
  for (const int64_t kind : arguments[size_t(swizzle)].toIntVector())
    if (kind != 0) return std::nullopt;
  return scales[0];
}

struct GroupScales {
  at::Tensor of_a, of_b;  // (M, 1) and (G, 1, N)
};
std::optional<GroupScales> group_scales_at(const Product& op, Arguments arguments) {
  const at::Tensor &a = tensor_at(arguments, op.a), &b = tensor_at(arguments, op.b);
  const auto of_a = row_scales_at(arguments, op.scale_a, op.recipe_a, op.swizzle_a);
  const auto of_b = row_scales_at(arguments, op.scale_b, op.recipe_b, op.swizzle_b);
  if (!of_a || !of_b || of_a->dim() != 1 || of_b->dim() != 2) return std::nullopt;
  for (const at::Tensor* const t : {&*of_a, &*of_b})
    if (t->scalar_type() != at::kFloat || t->device() != a.device() || why_not_memory(*t))
      return std::nullopt;
  if (of_a->size(0) != a.size(0) || of_b->size(0) != b.size(0) || of_b->size(1) != b.size(2))
    return std::nullopt;
  return GroupScales{of_a->unsqueeze(1), of_b->unsqueeze(1)};
}

at::ScalarType type_of_groups(const Product& op, Arguments arguments) {
  return arguments[size_t(op.out_dtype)].toOptional<at::ScalarType>().value_or(at::kBFloat16);
}

std::optional<std::string> why_not_group_codes(const at::Tensor& t, int64_t dim) {
  if (auto why = why_not_memory(t)) return why;
  if (t.scalar_type() != at::kFloat8_e4m3fn && t.scalar_type() != at::kFloat8_e5m2)
    return "dtype " + name_of(t.scalar_type());
  if (t.dim() != dim) return "groups of other dimensions than rows";
  if (t.numel() == 0) return "a product without elements";
  return std::nullopt;
}

// What torch itself refuses of operands that fastgemm takes.
std::optional<std::string> refusal_of_groups(const Product& op, Arguments arguments,
                                             const GroupScales& scales) {
  const at::Tensor &a = tensor_at(arguments, op.a), &b = tensor_at(arguments, op.b);
  if (torch_ops::capability_of(read(a).view) != 90) return "groups of fp8 on this device";
  for (const at::Tensor* const t : {&a, &b}) {
    if (t->scalar_type() != at::kFloat8_e4m3fn) return "groups of dtype " + name_of(t->scalar_type());
    const int64_t k = t == &a ? 1 : -2, line = t == &a ? 0 : -1;
    if (t->size(k) % kUnit != 0 || t->stride(k) != 1 || t->stride(line) % kUnit != 0 ||
        t->stride(line) < t->size(k) || reinterpret_cast<uintptr_t>(t->const_data_ptr()) % kUnit != 0)
      return "codes that do not lie along K, aligned to 16 bytes";
  }
  if (b.size(-1) % kUnit != 0) return "sizes that are no multiples of 16";
  if (!scales.of_a.is_contiguous() || !scales.of_b.is_contiguous()) return "scales of other strides";
  if (type_of_groups(op, arguments) != at::kBFloat16) return "another out_dtype of groups";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_scaled_groups_passed_on(const Product& op, Arguments arguments, bool extends) {
  const at::Tensor &a = tensor_at(arguments, op.a), &b = tensor_at(arguments, op.b);
  if (auto why = why_not_group_codes(a, 2)) return why;
  if (auto why = why_not_group_codes(b, 3)) return why;
  if (a.size(1) != b.size(1)) return "other inner sizes";
  const auto offs = arguments[size_t(op.offs)].toOptional<at::Tensor>();
  const bool are_ends = offs && offs->dim() == 1 && offs->scalar_type() == at::kInt && offs->has_storage() &&
                        offs->device() == a.device() && offs->size(0) == b.size(0);
  if (!are_ends) return "offs that are no ends of groups";
  for (const int i : {op.bias, op.scale_result})
    if (i >= 0 && !arguments[size_t(i)].isNone()) return "a bias of groups, or a scale of the result";
  if (op.contraction >= 0 && !arguments[size_t(op.contraction)].toIntVector().empty())
    return "contraction_dim";
  const at::ScalarType type = type_of_groups(op, arguments);
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) return "a result of " + name_of(type);
  if (a.is_cuda() && torch_ops::capability_of(read(a).view) == 0) return "a build without CUDA";
  const std::optional<GroupScales> scales = group_scales_at(op, arguments);
  if (!scales) return "scales of another form";
  return extends ? std::nullopt : refusal_of_groups(op, arguments, *scales);
}

// Sums are promoted, whatever use_fast_accum says: fastgemm's kernel is faster than torch's in both modes.
at::Tensor compute_scaled_groups(const Product& op, Arguments arguments, const PatchFrame& frame) {
  const GroupScales scales = group_scales_at(op, arguments).value();
  const at::Tensor offs = arguments[size_t(op.offs)].toTensor();
  torch_ops::ScaledGroupsCall call{.a = read(tensor_at(arguments, op.a)),
                                   .b = read(tensor_at(arguments, op.b)),
                                   .scale_a = read(scales.of_a),
                                   .scale_b = read(scales.of_b),
                                   .offs = read(offs)};
  call.blocks_a = {1, 0}, call.blocks_b = {0, 1};
  call.choice = {frame.level, frame.kernel};
  call.out_dtype = int32_t(type_of_groups(op, arguments));
  return take(with_memory_errors([&] { return torch_ops::multiply_scaled_groups(call); }));
}

}  // namespace fastgemm::override
