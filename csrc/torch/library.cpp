// The ops as torch sees them. Three things about the schemas were learned by probing torch 2.13:
// - an argument called `kernel` breaks inductor, so kernels are named by `impl`;
// - an out= or in-place op must return (), because a returned alias fails opcheck and torch.compile;
// - the ops with a leading underscore have no autograd formula in Python, which would cost 4 us per call even
//   if no gradient is wanted. Eager calls use these ops, and csrc/torch/override gives them a formula in C++.
#include "torch/hooks.h"
#include "torch/ops.h"

#define GEMM_ARGUMENTS                                                                                     \
  "(Tensor a, Tensor b, Tensor? c=None, *, float alpha=1.0, float? beta=None, bool trans_a=False, "        \
  "bool trans_b=False, int? level=None, str? impl=None, str? precision=None, ScalarType? out_dtype=None, " \
  "bool symmetric=False"
#define LINEAR_ARGUMENTS                                                                              \
  "(Tensor input, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, str? activation=None, " \
  "int? level=None, str? impl=None, str? precision=None, ScalarType? out_dtype=None"
#define QUANTIZED_LINEAR_ARGUMENTS                                                                        \
  "(Tensor input, Tensor codes, Tensor? scales, Tensor? zeros, Tensor? global_scale, Tensor? bias=None, " \
  "Tensor? residual=None, *, int n, str code, str scale, str zero, bool units, int group_n, "             \
  "int group_k, str? activation=None, int? level=None, str? impl=None, bool invariant=False, "            \
  "ScalarType? out_dtype=None"
#define DEQUANTIZE_ARGUMENTS                                                                        \
  "(Tensor codes, Tensor? scales, Tensor? zeros, Tensor? global_scale, *, int n, int k, str code, " \
  "str scale, str zero, bool units, int group_n, int group_k, ScalarType? dtype=None"
#define GROUPED_OPTIONS                                                                     \
  ", *, str? activation=None, int? level=None, str? impl=None, bool invariant=False, str? " \
  "precision=None, ScalarType? out_dtype=None"
#define GROUPED_ARGUMENTS "(Tensor a, Tensor b, Tensor? offs=None, Tensor? bias=None" GROUPED_OPTIONS
#define SCALED_ARGUMENTS                                                                               \
  "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? residual=None, *, " \
  "int block_m, int block_k_of_a, int block_k_of_b, int block_n, str? activation=None, "               \
  "int? level=None, str? impl=None, ScalarType? out_dtype=None"
#define SCALED_GROUPED_ARGUMENTS                                                                         \
  "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor offs, *, int block_m, int block_k_of_a, " \
  "int block_k_of_b, int block_n, int? level=None, str? impl=None, ScalarType? out_dtype=None"
#define TRANSPOSE_ARGUMENTS "(Tensor a, *, int? level=None, str? impl=None"
#define ADD_ARGUMENTS "Tensor b, *, float alpha=1.0, int? level=None, str? impl=None"

STABLE_TORCH_LIBRARY(fastgemm, m) {
  m.def("gemm" GEMM_ARGUMENTS ") -> Tensor");
  m.def("_gemm" GEMM_ARGUMENTS ") -> Tensor");
  m.def("_matmul(Tensor a, Tensor b) -> Tensor");
  m.def("gemm.out" GEMM_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def("linear" LINEAR_ARGUMENTS ") -> Tensor");
  m.def("_fused_linear" LINEAR_ARGUMENTS ") -> Tensor");
  m.def("quantized_linear" QUANTIZED_LINEAR_ARGUMENTS ") -> Tensor");
  m.def("_quantized_linear" QUANTIZED_LINEAR_ARGUMENTS ") -> Tensor");
  m.def("_dequantize" DEQUANTIZE_ARGUMENTS ") -> Tensor");
  m.def("grouped_mm" GROUPED_ARGUMENTS ") -> Tensor");
  m.def("_grouped_mm" GROUPED_ARGUMENTS ") -> Tensor");
  m.def("_gathered_mm(Tensor a, Tensor b, Tensor? offs, Tensor? bias, Tensor rows" GROUPED_OPTIONS
        ") -> Tensor");
  m.def("scaled_mm" SCALED_ARGUMENTS ") -> Tensor");
  m.def("scaled_grouped_mm" SCALED_GROUPED_ARGUMENTS ") -> Tensor");
  m.def(
      "quantize_fp8(Tensor x, Tensor? scale=None, *, int block_rows, int block_cols, ScalarType? dtype=None, "
      "bool e8m0=False, str? activation=None, Tensor? residual=None) -> (Tensor, Tensor)");
  m.def(
      "_quantize_fp8_with_transposed(Tensor x, *, int block_rows, int block_cols, ScalarType? dtype=None, "
      "bool "
      "e8m0=False) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
  m.def("_route_tokens(Tensor ids, int experts) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("_combine_rows(Tensor y, Tensor places, Tensor? weights=None) -> Tensor");
  m.def(
      "_combine_gradients(Tensor grad, Tensor y, Tensor places, Tensor weights, bool of_rows, bool "
      "of_weights) "
      "-> (Tensor, Tensor)");
  m.def("transpose" TRANSPOSE_ARGUMENTS ") -> Tensor");
  m.def("_transpose" TRANSPOSE_ARGUMENTS ") -> Tensor");
  m.def("transpose.out" TRANSPOSE_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def("add(Tensor a, " ADD_ARGUMENTS ") -> Tensor");
  m.def("_add(Tensor a, " ADD_ARGUMENTS ") -> Tensor");
  m.def("add.out(Tensor a, " ADD_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def("add_(Tensor(a!) a, " ADD_ARGUMENTS ") -> ()");
}

namespace {

template <auto kernel>
void boxed(StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  fastgemm::torch_ops::with_value_errors([&] { kernel(stack, inputs, outputs); });
}

// The same functions serve both devices: each reads the device from its tensors.
template <class Library>
void implement(Library& m) {
  using namespace fastgemm::torch_ops;
  m.impl("gemm", &boxed<gemm>);
  m.impl("_gemm", &boxed<gemm>);
  m.impl("_matmul", &boxed<matmul>);
  m.impl("gemm.out", &boxed<gemm_out>);
  m.impl("linear", &boxed<linear>);
  m.impl("_fused_linear", &boxed<linear>);
  m.impl("quantized_linear", &boxed<quantized_linear>);
  m.impl("_quantized_linear", &boxed<quantized_linear>);
  m.impl("_dequantize", &boxed<dequantize>);
  m.impl("grouped_mm", &boxed<grouped_mm>);
  m.impl("_grouped_mm", &boxed<grouped_mm>);
  m.impl("_gathered_mm", &boxed<gathered_mm>);
  m.impl("scaled_mm", &boxed<scaled_mm>);
  m.impl("scaled_grouped_mm", &boxed<scaled_grouped_mm>);
  m.impl("quantize_fp8", &boxed<quantize_fp8>);
  m.impl("_quantize_fp8_with_transposed", &boxed<quantize_fp8_with_transposed>);
  m.impl("_route_tokens", &boxed<route_tokens>);
  m.impl("_combine_rows", &boxed<combine_rows>);
  m.impl("_combine_gradients", &boxed<combine_gradients>);
  m.impl("transpose", &boxed<transpose>);
  m.impl("_transpose", &boxed<transpose>);
  m.impl("transpose.out", &boxed<transpose_out>);
  m.impl("add", &boxed<add>);
  m.impl("_add", &boxed<add>);
  m.impl("add.out", &boxed<add_out>);
  m.impl("add_", &boxed<add_in_place>);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(fastgemm, CPU, m) { implement(m); }
#if FASTGEMM_HAS_CUDA
STABLE_TORCH_LIBRARY_IMPL(fastgemm, CUDA, m) { implement(m); }
#endif
