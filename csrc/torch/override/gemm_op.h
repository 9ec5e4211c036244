// Calls torch.ops.fastgemm._gemm and gemm from C++, with gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>

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
using MatmulSignature = at::Tensor(const at::Tensor& a, const at::Tensor& b);

// bare_gemm() is `_gemm`, whose only autograd formula is the one of this library. public_gemm() is `gemm`,
// whose formula is in Python and also works in forward mode and torch.func.
const c10::TypedOperatorHandle<GemmSignature>& bare_gemm();
const c10::TypedOperatorHandle<GemmSignature>& public_gemm();
const c10::TypedOperatorHandle<MatmulSignature>& bare_matmul();
const c10::TypedOperatorHandle<LayerSignature>& layer();

template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
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

// Whether autograd must record a call, and whether the Python formula must record it.
bool needs_gradient(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c);
bool needs_python(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c);

}  // namespace fastgemm::override
