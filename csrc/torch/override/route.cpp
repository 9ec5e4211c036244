#include "torch/override/route.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "torch/override/convert.h"
#include "torch/override/flags.h"
#include "torch/override/grouped.h"
#include "torch/override/kinds.h"
#include "torch/override/operands.h"
#include "torch/override/scaled.h"
#include "torch/override/scaled_groups.h"
#include "torch/override/scope.h"

namespace fastgemm::override {
namespace {

// The value of a real number; none if it has an imaginary part.
std::optional<double> real(const at::Scalar& scale) {
  if (!scale.isComplex()) return scale.to<double>();
  const auto z = scale.toComplexDouble();
  return z.imag() == 0 ? std::optional(z.real()) : std::nullopt;
}

// Whether products of a type can be scaled by a number. torch itself refuses most other numbers. Outside of
// these magnitudes a number would be rounded to 0 or infinity in the type in which products are scaled.
bool holds(at::ScalarType type, const at::Scalar& scale) {
  if (!real(scale) || (scale.isComplex() && !at::isComplexType(type))) return false;
  const double x = std::abs(*real(scale));
  if (x == 0) return true;
  if (c10::toRealValueType(type) == at::kDouble)
    return x >= 0x1p-1074 && x <= std::numeric_limits<double>::max();
  if (type == at::kInt) return x <= 2147483647.0 && x == std::nearbyint(x);
  if (type == at::kLong) return scale.isIntegral(true) || (x < 0x1p63 && x == std::nearbyint(x));
  return x >= 0x1p-149 && x <= double(std::numeric_limits<float>::max());
}

// Reads an operand and its scale. A double cannot hold every int64 scale. In that case `scaled` holds the
// operand times its scale, modulo 2^64.
torch_ops::TensorRef read_scaled(const at::Tensor& t, const at::Scalar& given, double& scale,
                                 at::Tensor& scaled) {
  scale = *real(given);
  if (t.scalar_type() != at::kLong || std::abs(scale) < 0x1p53) return read(t);
  scaled = at::mul(t, given.to<int64_t>());
  scale = 1;
  return read(scaled);
}

torch_ops::ProductCall call_of(const Product& op, Arguments arguments, const PatchFrame& frame,
                               std::array<at::Tensor, 2>& scaled) {
  torch_ops::ProductCall call{.a = read(tensor_at(arguments, op.a)), .b = read(tensor_at(arguments, op.b))};
  if (op.out >= 0) call.out = written(tensor_at(arguments, op.out));
  if (op.c >= 0) {
    const auto scale = [&](int i) { return arguments[size_t(i)].toScalar(); };
    call.a = read_scaled(tensor_at(arguments, op.a), scale(op.alpha), call.alpha, scaled[0]);
    call.c = read_scaled(tensor_at(arguments, op.c), scale(op.beta), call.beta.emplace(), scaled[1]);
  }
  if (op.out_dtype >= 0) call.out_dtype = int32_t(arguments[size_t(op.out_dtype)].toScalarType());
  call.choice = {frame.level, frame.kernel};
  call.tune = frame.tune;
  call.precision = precision_for(tensor_at(arguments, op.a), frame);
  return call;
}

// Applies the same activation as torch's own kernels. On a GPU they use the tanh form of gelu, like
// cuBLASLt's epilogue.
void activate(at::Tensor& result, bool use_gelu) {
  if (use_gelu)
    at::gelu_(result, result.is_cuda() ? "tanh" : "none");
  else
    at::relu_(result);
}

std::string first_line(const char* text) {
  const std::string_view all(text);
  return std::string(all.substr(0, all.find('\n')));
}

}  // namespace

Product::Product(const c10::FunctionSchema& schema)
    : name(schema.name().substr(sizeof("aten::") - 1)), arguments(int(schema.arguments().size())) {
  const auto at = [&](const char* argument) { return schema.argumentIndexWithName(argument).value_or(-1); };
  const bool batched = name.find("bmm") != std::string::npos, adds = at("beta") >= 0;
  rank = batched ? 3 : 2;
  a = !adds ? at("self") : at(batched ? "batch1" : "mat1");
  b = at(adds && batched ? "batch2" : "mat2");
  if (adds) c = at("self");
  if (b < 0 && !adds) b = 1;
  beta = at("beta"), alpha = at("alpha"), out_dtype = at("out_dtype"), use_gelu = at("use_gelu");
  out = name.back() == '_' ? c : at("out");
  offs = at("offs"), bias = at("bias");
  scale_a = at("scale_a"), scale_b = at("scale_b"), scale_result = at("scale_result");
  recipe_a = at("recipe_a"), recipe_b = at("recipe_b"), swizzle_a = at("swizzle_a"),
  swizzle_b = at("swizzle_b");
  contraction = at("contraction_dim");
}

std::optional<Precision> precision_for(const at::Tensor& a, const PatchFrame& frame) {
  if (frame.precision && has_precision(a.scalar_type(), *frame.precision)) return frame.precision;
  if (follows_float32(a.scalar_type()) && a.is_cuda()) return torch_float32_precision();
  return std::nullopt;
}

std::optional<std::string> why_passed_on(const Product& op, Arguments arguments, const PatchFrame& frame) {
  if (op.is_grouped() && op.is_scaled()) return why_scaled_groups_passed_on(op, arguments, frame.extends);
  if (op.is_grouped()) return why_groups_passed_on(op, arguments, frame);
  if (op.is_scaled()) return why_scaled_passed_on(op, arguments, frame);
  const at::Tensor &a = tensor_at(arguments, op.a), &b = tensor_at(arguments, op.b);
  for (const at::Tensor* t : {&a, &b}) {
    if (auto why = why_not(*t, frame.extends)) return why;
    if (t->dim() != op.rank) return "a tensor of " + std::to_string(t->dim()) + " dimensions";
  }
  for (const int i : {op.c, op.out})
    if (i >= 0 && has_names(tensor_at(arguments, i))) return "a tensor with names";
  if (op.rank == 3 && a.size(0) != b.size(0)) return "batches of different sizes";
  if (op.c < 0) return std::nullopt;
  const auto scale = [&](int i) { return arguments[size_t(i)].toScalar(); };
  if (!holds(a.scalar_type(), scale(op.alpha)) || !holds(a.scalar_type(), scale(op.beta)))
    return "scales that " + name_of(a.scalar_type()) + " does not hold";
  // Without products torch computes beta * c alone, by multiplication, which gives another type.
  if (at::isIntegralType(a.scalar_type(), true) && a.size(-1) == 0 && !scale(op.beta).isIntegral(true))
    return "a sum of no products with a scale of another type";
  const bool half = a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16;
  // torch fuses both for 16-bit types, and has no complex activation.
  if (op.use_gelu >= 0 && (half || a.is_complex())) return "a product with its activation";
  return std::nullopt;
}

std::optional<at::Tensor> compute(const Product& op, Arguments arguments, const PatchFrame& frame,
                                  std::string& reason) {
  try {
    const Computing computing;
    if (op.is_grouped() && op.is_scaled()) return compute_scaled_groups(op, arguments, frame);
    if (op.is_grouped()) return compute_groups(op, arguments, frame);
    if (op.is_scaled()) return compute_scaled(op, arguments, frame);
    std::array<at::Tensor, 2> scaled;
    const AtenTensorHandle made = product_of(call_of(op, arguments, frame, scaled));
    at::Tensor result = made ? take(made) : tensor_at(arguments, op.out);
    if (op.use_gelu >= 0) activate(result, arguments[size_t(op.use_gelu)].toBool());
    return result;
  } catch (const std::invalid_argument& refusal) {
    reason = first_line(refusal.what());
  } catch (const CannotRun& refusal) {
    reason = first_line(refusal.what());
  }
  return std::nullopt;
}

}  // namespace fastgemm::override
