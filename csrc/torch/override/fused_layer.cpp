// fastgemm.linear in eager mode: activation(input @ weight^T + bias) + residual, with its gradient.
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>

#include <algorithm>

#include "torch/override/flags.h"
#include "torch/override/gemm_op.h"
#include "torch/override/kinds.h"

namespace fastgemm::override {
namespace {

// Casts the operands like autocast, once.
FusedLayer cast_by_autocast(FusedLayer l, c10::DeviceType device) {
  const auto type = at::autocast::get_autocast_dtype(device);
  const auto lower = [&](const OptionalTensor& t, at::ScalarType to) {
    return t ? OptionalTensor(cast(*t, device, to)) : std::nullopt;
  };
  l.input = cast(l.input, device, type), l.weight = cast(l.weight, device, type);
  l.bias = lower(l.bias, type), l.residual = lower(l.residual, l.out_dtype.value_or(type));
  return l;
}

// Whether the operands are right. Python reports what is wrong.
bool fits(const FusedLayer& l) {
  const at::Tensor& x = l.input;
  if (!is_layer(x, l.weight, l.bias, true) || at::isIntegralType(x.scalar_type(), false)) return false;
  if (x.is_complex() && (l.activation || l.residual)) return false;
  constexpr std::string_view kActivations[] = {"relu", "gelu", "gelu_tanh", "silu"};
  if (l.activation && std::ranges::find(kActivations, *l.activation) == std::end(kActivations)) return false;
  const auto type = l.out_dtype.value_or(x.scalar_type());
  if (type != x.scalar_type() && type != at::kFloat) return false;
  if (!l.residual) return true;
  return is_dense(*l.residual) && l.residual->scalar_type() == type && l.residual->device() == x.device() &&
         l.residual->sym_sizes() == layer_shape(x, l.weight, true);
}

// Rows that are computed independently of each other take another form of torch's functions on a CPU
// (_for_torch in python/fastgemm/_ops/linear.py).
bool is_invariant(const OptionalText& kernel) { return kernel == "invariant" || kernel == "naive"; }

at::Tensor activated(std::string_view activation, const at::Tensor& x) {
  if (activation == "relu") return at::relu(x);
  if (activation == "silu") return at::silu(x);
  return at::gelu(x, activation == "gelu" ? "none" : "tanh");
}

// A kernel with an epilogue cannot store a second result, the input of the activation. If the gradient needs
// it, the product is stored, and torch's functions follow. The gradient of relu follows from its result.
at::Tensor with_gradient(const FusedLayer& l) {
  if (l.out_dtype) return {};
  if (!l.activation || (l.activation == "relu" && !l.residual)) return differentiable_layer(l);
  if (is_invariant(l.kernel)) return {};
  FusedLayer product = l;
  product.activation.reset(), product.residual.reset();
  const at::Tensor result = activated(*l.activation, differentiable_layer(product));
  return l.residual ? result.add(*l.residual) : result;
}

at::Tensor computed(const FusedLayer& l) {
  if (!fits(l)) return {};
  if (!l.activation && !l.residual && !l.out_dtype)  // a product, whose op costs 1 us less
    return linear_rows(l.input, l.weight, l.bias, true, l.level, l.kernel, l.precision);
  if (needs_gradient(l.input, l.weight, l.bias)) return with_gradient(l);
  const bool only_residual = l.residual && needs_gradient(*l.residual, *l.residual, {});
  return only_residual ? at::Tensor() : layer_of_rows(l);
}

}  // namespace

at::Tensor fused_layer(FusedLayer l) {
  const auto device = l.input.device().type();
  const bool known = device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA;
  if (!known) return {};
  if (l.precision || !at::autocast::is_autocast_enabled(device)) {
    const bool tf32 = !l.precision && l.input.is_cuda() && follows_float32(l.input.scalar_type()) &&
                      torch_float32_precision() == Precision::tf32;
    if (tf32) l.precision = "tf32";
    return computed(l);
  }
  const FusedLayer lower = cast_by_autocast(std::move(l), device);
  const c10::impl::ExcludeDispatchKeyGuard once(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  return computed(lower);
}

}  // namespace fastgemm::override
