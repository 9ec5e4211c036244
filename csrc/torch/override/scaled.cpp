#include "torch/override/scaled.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>

#include "torch/override/convert.h"
#include "torch/override/route.h"
#include "torch/override/scales.h"
#include "torch/scaled_mm.h"

namespace fastgemm::override {
namespace {

constexpr char kTorchIsFaster[] = "torch's kernel is faster for these scales and sizes";
constexpr int64_t kSixteen = 16;  // of the codes that torch's kernels take, in sizes and in memory

std::optional<at::Tensor> optional_tensor_at(Arguments arguments, int i) {
  return i < 0 ? std::nullopt : arguments[size_t(i)].toOptional<at::Tensor>();
}

// The dtype of the result: that of a, unless the call says another.
at::ScalarType result_type(const Product& op, Arguments arguments) {
  if (op.out >= 0) return tensor_at(arguments, op.out).scalar_type();
  return arguments[size_t(op.out_dtype)].toOptional<at::ScalarType>().value_or(
      tensor_at(arguments, op.a).scalar_type());
}

bool is_wide(at::ScalarType t) { return t == at::kFloat || t == at::kBFloat16 || t == at::kHalf; }

std::optional<std::string> why_not_codes(const at::Tensor& t) {
  if (auto why = why_not_memory(t)) return why;
  if (t.scalar_type() != at::kFloat8_e4m3fn && t.scalar_type() != at::kFloat8_e5m2)
    return "dtype " + name_of(t.scalar_type());
  if (t.dim() != 2) return "a tensor of " + std::to_string(t.dim()) + " dimensions";
  if (t.numel() == 0) return "a product without elements";
  return std::nullopt;
}

std::optional<std::string> why_not_result(const Product& op, Arguments arguments) {
  const at::ScalarType type = result_type(op, arguments);
  if (!is_wide(type)) return "a result of " + name_of(type);
  if (optional_tensor_at(arguments, op.scale_result)) return "a scale of the result";
  if (op.out < 0) return std::nullopt;
  const at::Tensor& out = tensor_at(arguments, op.out);
  if (auto why = why_not_memory(out)) return why;
  const std::array<int64_t, 2> shape{tensor_at(arguments, op.a).size(0), tensor_at(arguments, op.b).size(1)};
  if (out.sizes() != at::IntArrayRef(shape) || out.device() != tensor_at(arguments, op.a).device())
    return "an out= that torch would resize";
  if (arguments[size_t(op.out_dtype)].toOptional<at::ScalarType>().value_or(type) != type)
    return "an out= of another dtype";
  return std::nullopt;
}

// Whether rows of codes of a GPU begin at multiples of 16 bytes, along k.
bool is_aligned(const at::Tensor& t, int64_t row_stride, int64_t along_k, int64_t k) {
  return along_k == 1 && row_stride >= k && row_stride % kSixteen == 0 &&
         reinterpret_cast<uintptr_t>(t.const_data_ptr()) % kSixteen == 0;
}

// Why torch's kernels for GPUs refuse the codes, if they do. Before Blackwell they take NT only: rows of a,
// columns of b. On Blackwell torch checks the codes itself.
std::optional<std::string> refusal_of_codes(const at::Tensor& a, const at::Tensor& b, int capability) {
  if (capability < 89) return "a GPU without instructions for fp8";
  if (capability >= 100) return std::nullopt;
  if (a.scalar_type() == at::kFloat8_e5m2 && b.scalar_type() == at::kFloat8_e5m2)
    return "two matrices of e5m2";
  if (a.size(1) % kSixteen != 0 || b.size(1) % kSixteen != 0) return "sizes that are no multiples of 16";
  if (!is_aligned(a, a.stride(0), a.stride(1), a.size(1)) ||
      !is_aligned(b, b.stride(1), b.stride(0), b.size(0)))
    return "codes that do not lie along K, aligned to 16 bytes";
  return std::nullopt;
}

// Whether torch multiplies this pair of recipes. It takes equal recipes of a tensor or of rows, and on Hopper
// blocks of 128.
bool is_torchs_pair(Recipe a, Recipe b, int capability) {
  if (a == Recipe::tensor || a == Recipe::row) return a == b;
  return capability == 90 && b != Recipe::tensor && b != Recipe::row &&
         (a == Recipe::of_128 || b == Recipe::of_128);
}

// Whether torch's CPU kernel takes scales of rows. It does in every torch that has a CPU kernel of
// _scaled_mm_v2.
bool takes_rows_on_cpu() {
  static const bool takes = [] {
    const auto op = c10::Dispatcher::singleton().findSchema({"aten::_scaled_mm_v2", ""});
    return op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
  }();
  return takes;
}

// The reason why torch itself refuses operands that fastgemm takes.
std::optional<std::string> refusal(const Product& op, Arguments arguments, const BothScales& scales,
                                   int capability) {
  const at::Tensor &a = tensor_at(arguments, op.a), &b = tensor_at(arguments, op.b);
  if (a.is_cuda())
    if (auto why = refusal_of_codes(a, b, capability)) return why;
  const bool of_rows = scales.a.recipe == Recipe::row;
  if ((of_rows && a.is_cpu() && !takes_rows_on_cpu()) ||
      !is_torchs_pair(scales.a.recipe, scales.b.recipe, capability) ||
      !scales.a.are_in_torchs_order(a.is_cuda()) || !scales.b.are_in_torchs_order(a.is_cuda()))
    return "scales of other recipes or strides than torch's";
  const auto bias = optional_tensor_at(arguments, op.bias);
  const at::ScalarType type = result_type(op, arguments);
  if (a.is_cuda() && bias && (type == at::kFloat || bias->scalar_type() != type))
    return "a bias of this dtype";
  return std::nullopt;
}

torch_ops::Blocks blocks_of_b(const BothScales& scales) {
  const torch_ops::Blocks along_k = scales.b.blocks();
  return {along_k.cols, along_k.rows};
}

bool is_faster(const Product& op, Arguments arguments, const BothScales& scales, int capability) {
  const at::Tensor &a = tensor_at(arguments, op.a), &b = tensor_at(arguments, op.b);
  return torch_ops::scaled_is_faster(a.size(0), b.size(1), a.size(1), scales.a.blocks(), blocks_of_b(scales),
                                     capability);
}

}  // namespace

std::optional<std::string> why_scaled_passed_on(const Product& op, Arguments arguments,
                                                const PatchFrame& frame) {
  const at::Tensor& a = tensor_at(arguments, op.a);
  // First, so that a call that torch computes costs little. One that torch refuses is then counted so, too.
  if (a.is_cuda() && a.dim() == 2 && a.size(0) > torch_ops::kMostScaledRows && frame.is_free() &&
      !frame.extends)
    return kTorchIsFaster;
  for (const int i : {op.a, op.b})
    if (auto why = why_not_codes(tensor_at(arguments, i))) return why;
  if (tensor_at(arguments, op.a).size(1) != tensor_at(arguments, op.b).size(0)) return "other inner sizes";
  if (const auto bias = optional_tensor_at(arguments, op.bias))
    if (auto why = why_not_memory(*bias)) return why;
  if (op.contraction >= 0 && !arguments[size_t(op.contraction)].toIntVector().empty())
    return "contraction_dim";
  if (auto why = why_not_result(op, arguments)) return why;
  const int capability = torch_ops::capability_of(read(a).view);
  if (a.is_cuda() && capability == 0) return "a build without CUDA";
  const std::optional<BothScales> scales = scales_at(op, arguments);
  if (!scales) return "scales of another form";
  if (auto why = refusal(op, arguments, *scales, capability)) return frame.extends ? std::nullopt : why;
  if (frame.is_free() && !is_faster(op, arguments, *scales, capability)) return kTorchIsFaster;
  return std::nullopt;
}

at::Tensor compute_scaled(const Product& op, Arguments arguments, const PatchFrame& frame) {
  const at::Tensor& a = tensor_at(arguments, op.a);
  const BothScales scales = scales_at(op, arguments).value();
  const at::Tensor scale_b = scales.b.grid.t();
  torch_ops::ScaledCall call{.a = read(a), .b = read(tensor_at(arguments, op.b))};
  call.scale_a = read(scales.a.grid), call.scale_b = read(scale_b);
  call.blocks_a = scales.a.blocks(), call.blocks_b = blocks_of_b(scales);
  const auto bias = optional_tensor_at(arguments, op.bias);
  if (bias) call.bias = read(*bias);
  call.choice = {frame.level, frame.kernel};
  call.out_dtype = int32_t(result_type(op, arguments));
  // Sums are promoted, whatever use_fast_accum says: few rows take less time than torch's in both modes.
  at::Tensor result = take(with_memory_errors([&] { return torch_ops::multiply_scaled(call); }));
  if (op.out < 0) return result;
  return tensor_at(arguments, op.out).copy_(result);
}

}  // namespace fastgemm::override
