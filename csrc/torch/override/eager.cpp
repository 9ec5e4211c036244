#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include "torch/choices.h"
#include "torch/hooks.h"
#include "torch/override/convert.h"
#include "torch/override/flags.h"
#include "torch/override/gemm_op.h"
#include "torch/override/kinds.h"
#include "torch/override/registration.h"

namespace fastgemm::override {
namespace {

// Kernels for the CPU and CUDA keys.

torch_ops::ProductCall call_of(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c,
                               double alpha, std::optional<double> beta, bool trans_a, bool trans_b,
                               std::optional<int64_t> level, OptionalText kernel, OptionalText precision,
                               std::optional<at::ScalarType> out_dtype, bool symmetric) {
  torch_ops::ProductCall call{.a = read(a), .b = read(b)};
  if (c) call.c = read(*c);
  call.alpha = alpha, call.beta = beta;
  call.trans_a = trans_a, call.trans_b = trans_b;
  call.choice = torch_ops::choice_of(level, kernel);
  call.precision = torch_ops::precision_of(precision);
  if (out_dtype) call.out_dtype = int32_t(*out_dtype);
  call.symmetry.known = call.symmetry.asked = symmetric;
  return call;
}

at::Tensor gemm(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c, double alpha,
                std::optional<double> beta, bool trans_a, bool trans_b, std::optional<int64_t> level,
                OptionalText kernel, OptionalText precision, std::optional<at::ScalarType> out_dtype,
                bool symmetric) {
  return torch_ops::with_value_errors([&] {
    return take(product_of(
        call_of(a, b, c, alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype, symmetric)));
  });
}

void gemm_out(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c, double alpha,
              std::optional<double> beta, bool trans_a, bool trans_b, std::optional<int64_t> level,
              OptionalText kernel, OptionalText precision, std::optional<at::ScalarType> out_dtype,
              bool symmetric, at::Tensor& out) {
  torch_ops::with_value_errors([&] {
    torch_ops::ProductCall call =
        call_of(a, b, c, alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype, symmetric);
    call.out = written(out);
    product_of(call);
  });
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b) {
  return torch_ops::with_value_errors([&] { return take(product_of({.a = read(a), .b = read(b)})); });
}

// Kernels for the Autograd keys.

at::Tensor gemm_autograd(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b,
                         const OptionalTensor& c, double alpha, std::optional<double> beta, bool trans_a,
                         bool trans_b, std::optional<int64_t> level, OptionalText kernel,
                         OptionalText precision, std::optional<at::ScalarType> out_dtype, bool symmetric) {
  if (needs_python(a, b, c))
    return public_gemm().call(a, b, c, alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype,
                              symmetric);
  if (needs_gradient(a, b, c))
    return differentiable_gemm(a, b, c, alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype,
                               symmetric);
  const at::AutoDispatchBelowADInplaceOrView below;
  return bare_gemm().redispatch(keys & c10::after_ADInplaceOrView_keyset, a, b, c, alpha, beta, trans_a,
                                trans_b, level, kernel, precision, out_dtype, symmetric);
}

at::Tensor matmul_autograd(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b) {
  if (needs_gradient(a, b, {}) || needs_python(a, b, {}))
    return gemm_autograd(keys, a, b, {}, 1.0, {}, false, false, {}, {}, {}, {}, false);
  const at::AutoDispatchBelowADInplaceOrView below;
  return bare_matmul().redispatch(keys & c10::after_ADInplaceOrView_keyset, a, b);
}

// Kernels for the autocast keys; the same as python/fastgemm/_ops/autocast.py.

template <c10::DeviceType device>
at::Tensor gemm_autocast(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c, double alpha,
                         std::optional<double> beta, bool trans_a, bool trans_b, std::optional<int64_t> level,
                         OptionalText kernel, OptionalText precision, std::optional<at::ScalarType> out_dtype,
                         bool symmetric) {
  const c10::impl::ExcludeDispatchKeyGuard once(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const auto type = at::autocast::get_autocast_dtype(device);
  if (precision)  // a precision is for float32 operands, so they are not cast
    return bare_gemm().call(a, b, c, alpha, beta, trans_a, trans_b, level, kernel, precision, out_dtype,
                            symmetric);
  OptionalTensor addend = c;
  if (c) addend = cast(*c, device, out_dtype.value_or(type));
  return bare_gemm().call(cast(a, device, type), cast(b, device, type), addend, alpha, beta, trans_a, trans_b,
                          level, kernel, precision, out_dtype, symmetric);
}

template <c10::DeviceType device>
at::Tensor matmul_autocast(const at::Tensor& a, const at::Tensor& b) {
  const c10::impl::ExcludeDispatchKeyGuard once(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const auto type = at::autocast::get_autocast_dtype(device);
  return bare_matmul().call(cast(a, device, type), cast(b, device, type));
}

template <c10::DeviceType device>
at::Tensor fused_autocast(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                          const OptionalTensor& residual, OptionalText activation,
                          std::optional<int64_t> level, OptionalText kernel, OptionalText precision,
                          std::optional<at::ScalarType> out_dtype) {
  const c10::impl::ExcludeDispatchKeyGuard once(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const auto type = at::autocast::get_autocast_dtype(device);
  const auto run = [&](const at::Tensor& x, const at::Tensor& w, const OptionalTensor& b,
                       const OptionalTensor& r) {
    return bare_fused().call(x, w, b, r, activation, level, kernel, precision, out_dtype);
  };
  const auto added = [&](const OptionalTensor& t, at::ScalarType to) {
    return t ? OptionalTensor(cast(*t, device, to)) : std::nullopt;
  };
  if (precision) return run(input, weight, bias, residual);
  return run(cast(input, device, type), cast(weight, device, type), added(bias, type),
             added(residual, out_dtype.value_or(type)));
}

template <c10::DeviceType device>
void register_on(c10::DispatchKey backend, c10::DispatchKey autograd, c10::DispatchKey autocast) {
  const auto library = [](c10::DispatchKey key) {
    return new torch::Library(torch::Library::IMPL, "fastgemm", key, __FILE__, __LINE__);  // never deleted
  };
  library(backend)
      ->impl("_gemm", TORCH_FN(gemm))
      .impl("_matmul", TORCH_FN(matmul))
      .impl("gemm.out", TORCH_FN(gemm_out));
  library(autograd)->impl("_gemm", TORCH_FN(gemm_autograd)).impl("_matmul", TORCH_FN(matmul_autograd));
  library(autocast)
      ->impl("_gemm", TORCH_FN(gemm_autocast<device>))
      .impl("_matmul", TORCH_FN(matmul_autocast<device>))
      .impl("_fused_linear", TORCH_FN(fused_autocast<device>));
}

}  // namespace

const c10::TypedOperatorHandle<GemmSignature>& bare_gemm() {
  static const auto op = find_op<GemmSignature>("fastgemm::_gemm");
  return op;
}
const c10::TypedOperatorHandle<GemmSignature>& public_gemm() {
  static const auto op = find_op<GemmSignature>("fastgemm::gemm");
  return op;
}
const c10::TypedOperatorHandle<MatmulSignature>& bare_matmul() {
  static const auto op = find_op<MatmulSignature>("fastgemm::_matmul");
  return op;
}

const c10::TypedOperatorHandle<FusedSignature>& bare_fused() {
  static const auto op = find_op<FusedSignature>("fastgemm::_fused_linear");
  return op;
}
const c10::TypedOperatorHandle<IntoSignature>& gemm_into() {
  static const auto op = find_op<IntoSignature>("fastgemm::gemm", "out");
  return op;
}

void register_eager() {
  using c10::DispatchKey;
  register_on<c10::DeviceType::CPU>(DispatchKey::CPU, DispatchKey::AutogradCPU, DispatchKey::AutocastCPU);
  register_on<c10::DeviceType::CUDA>(DispatchKey::CUDA, DispatchKey::AutogradCUDA, DispatchKey::AutocastCUDA);
}

}  // namespace fastgemm::override
