// torch.ops.fastgemm._linear, which fastgemm.nn.linear calls in eager mode. It is composed of other ops, so
// the Python dispatcher, torch.func and tensor subclasses need no formula for it.
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <torch/library.h>

#include "torch/choices.h"
#include "torch/hooks.h"
#include "torch/override/flags.h"
#include "torch/override/gemm_op.h"
#include "torch/override/kinds.h"
#include "torch/override/registration.h"

namespace fastgemm::override {
namespace {

at::Tensor by_torch(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                    bool transposed) {
  if (transposed) return at::linear(input, weight, bias);
  const at::Tensor rows = rows_of(input);  // torch raises for a scalar
  const at::Tensor result = bias ? at::addmm(*bias, rows, weight) : at::mm(rows, weight);
  return input.dim() == 2 ? result : at::_unsafe_view_symint(result, layer_shape(input, weight, false));
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                  bool transposed, std::optional<int64_t> level, OptionalText kernel,
                  OptionalText precision) {
  const auto device = weight.device().type();
  const bool known = device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA;
  if (precision) {
    const Precision asked =
        *torch_ops::with_value_errors([&] { return torch_ops::precision_of(*precision); });
    if (!has_precision(input.scalar_type(), asked) || !has_precision(weight.scalar_type(), asked))
      precision.reset();
  }
  // If a precision is given, operands are not cast.
  if (known && !precision && at::autocast::is_autocast_enabled(device)) {
    const auto type = at::autocast::get_autocast_dtype(device);
    const at::Tensor x = cast(input, device, type), w = cast(weight, device, type);
    const OptionalTensor b = bias ? OptionalTensor(cast(*bias, device, type)) : std::nullopt;
    const c10::impl::ExcludeDispatchKeyGuard once(
        at::autocast::get_autocast_dispatch_key_from_device_type(device));
    if (is_layer(x, w, b, transposed)) return linear_rows(x, w, b, transposed, level, kernel, precision);
  } else if (is_layer(input, weight, bias, transposed)) {
    const bool follows = !precision && weight.is_cuda() && follows_float32(weight.scalar_type());
    if (follows && torch_float32_precision() == Precision::tf32) precision = "tf32";
    return linear_rows(input, weight, bias, transposed, level, kernel, precision);
  }
  return by_torch(input, weight, bias, transposed);
}

}  // namespace

// Torch computes all other layers.
bool is_layer(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
              bool transposed) {
  const auto type = weight.scalar_type();
  if (!is_multiplied(type) || input.scalar_type() != type || input.device() != weight.device()) return false;
  if (!is_dense(input) || !is_dense(weight) || input.dim() < 1 || weight.dim() != 2) return false;
  if (input.sym_size(-1) != weight.sym_size(transposed ? 1 : 0)) return false;
  return !bias || (bias->scalar_type() == type && bias->device() == weight.device() && is_dense(*bias) &&
                   bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(transposed ? 0 : 1));
}

const c10::TypedOperatorHandle<LayerSignature>& layer() {
  static const auto op = find_op<LayerSignature>("fastgemm::_linear");
  return op;
}

void register_layer() {
  auto* library = new torch::Library(torch::Library::FRAGMENT, "fastgemm", std::nullopt, __FILE__, __LINE__);
  library->def(
      "_linear(Tensor input, Tensor weight, Tensor? bias=None, bool transposed=True, int? level=None, "
      "str? impl=None, str? precision=None) -> Tensor",
      torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(linear)));
  // torch.func decomposes it before any transform, so that each transform sees a product
  // (python/fastgemm/_tracing/functorch.py).
  library->impl("_linear",
                torch::dispatch(c10::DispatchKey::FuncTorchDynamicLayerFrontMode, TORCH_FN(linear)));
}

}  // namespace fastgemm::override
