// Calls torch.ops.fastgemm._gemm and gemm from C++, with gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>
#include <vector>

namespace fastgemm::override {

using OptionalTensor = std::optional<at::Tensor>;
using OptionalText = std::optional<std::string_view>;

using GemmSignature = at::Tensor(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c,
                                 double alpha, std::optional<double> beta, bool trans_a, bool trans_b,
                                 std::optional<int64_t> level, OptionalText kernel, OptionalText precision,
                                 std::optional<at::ScalarType> out_dtype, bool symmetric);
using LayerSignature = at::Tensor(const at::Tensor& input, const at::Tensor& weight,
                                  const OptionalTensor& bias, bool transposed, std::optional<int64_t> level,
                                  OptionalText kernel, OptionalText precision);
using FusedSignature = at::Tensor(const at::Tensor& input, const at::Tensor& weight,
                                  const OptionalTensor& bias, const OptionalTensor& residual,
                                  OptionalText activation, std::optional<int64_t> level, OptionalText kernel,
                                  OptionalText precision, std::optional<at::ScalarType> out_dtype);
using IntoSignature = void(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c, double alpha,
                           std::optional<double> beta, bool trans_a, bool trans_b,
                           std::optional<int64_t> level, OptionalText kernel, OptionalText precision,
                           std::optional<at::ScalarType> out_dtype, bool symmetric, at::Tensor& out);
using MatmulSignature = at::Tensor(const at::Tensor& a, const at::Tensor& b);

// bare_gemm() is `_gemm`, whose only autograd formula is the one of this library. public_gemm() is `gemm`,
// whose formula is in Python and also works in forward mode and torch.func.
const c10::TypedOperatorHandle<GemmSignature>& bare_gemm();
const c10::TypedOperatorHandle<GemmSignature>& public_gemm();
const c10::TypedOperatorHandle<MatmulSignature>& bare_matmul();
const c10::TypedOperatorHandle<LayerSignature>& layer();
const c10::TypedOperatorHandle<FusedSignature>& bare_fused();
const c10::TypedOperatorHandle<IntoSignature>& gemm_into();

template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

// alpha op(a) op(b) + beta c with gradients. Called where autograd has not run yet.
at::Tensor differentiable_gemm(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c,
                               double alpha, std::optional<double> beta, bool trans_a, bool trans_b,
                               std::optional<int64_t> level, OptionalText kernel, OptionalText precision,
                               std::optional<at::ScalarType> out_dtype, bool symmetric = false);

// The product of a layer for an input of any rank, (..., K), as one node of the autograd graph. weight is (N,
// K) if `transposed`, else (K, N).
at::Tensor linear_rows(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                       bool transposed, std::optional<int64_t> level, OptionalText kernel,
                       OptionalText precision);

// activation(input @ weight^T + bias) + residual, for an input of any rank.
struct FusedLayer {
  at::Tensor input, weight;
  OptionalTensor bias, residual;
  OptionalText activation;
  std::optional<int64_t> level;
  OptionalText kernel, precision;
  std::optional<at::ScalarType> out_dtype;
};
// Computes it, with gradients and autocast. Undefined if Python must: for rare calls and wrong operands.
at::Tensor fused_layer(FusedLayer);
// By the op `_fused_linear`, without gradients.
at::Tensor layer_of_rows(const FusedLayer&);
// As one node of the autograd graph. The only activation is relu, without a residual.
at::Tensor differentiable_layer(const FusedLayer&);

// Whether this library computes a layer; weight is (N, K) if `transposed`, else (K, N).
bool is_layer(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias, bool transposed);
// (..., K) as a matrix; a view if the strides allow one, else a copy.
at::Tensor rows_of(const at::Tensor&);
// The shape of a layer's result.
std::vector<c10::SymInt> layer_shape(const at::Tensor& input, const at::Tensor& weight, bool transposed);

// Whether a transform of torch.func is active.
bool in_transform();
// Whether a tensor has a tangent of forward mode.
bool is_dual(const at::Tensor&);

// Whether autograd must record a call, and whether the Python formula must record it.
bool needs_gradient(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c);
bool needs_python(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c);

}  // namespace fastgemm::override
