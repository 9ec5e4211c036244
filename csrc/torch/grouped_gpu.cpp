#include <algorithm>

#include "core/passes.h"
#include "strategies/strategies.h"
#include "torch/context.h"
#include "torch/grouped_mm.h"
#include "torch/kernel_range.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

// The matrices of an operand; it has one for each group, or one with all groups.
template <class M>
M matrices_of(const View& v) {
  M m = matrix_of<M>(v, false);
  m.batch_stride = v.dim == 3 ? v.stride(3) : 0;
  return m;
}

// The product without its operands' addresses, bias and activation.
GemmProblem problem_of(const GroupedCall& call, const View& a, const View& b) {
  GemmProblem p;
  p.type = arithmetic_type("a", a.dtype), p.out_type = arithmetic_type("out", call.out.view.dtype);
  p.precision = call.precision.value_or(Precision::ieee);
  p.batch = call.groups, p.m = a.size(2), p.k = a.size(1), p.n = b.size(1);
  p.a = matrices_of<ConstMatrix>(a), p.b = matrices_of<ConstMatrix>(b);
  p.out = matrices_of<Matrix>(call.out.view);
  p.groups = {call.by, static_cast<const int32_t*>(call.offs.view.data)};
  return p;
}

// The operand, or a copy of it if its matrices have no unit stride.
TensorRef with_unit_stride(const TensorRef& x, std::optional<Tensor>& copy) {
  const View& v = x.view;
  if (v.size(1) == 1 || v.size(2) == 1 || v.stride(1) == 1 || v.stride(2) == 1) return x;
  copy = contiguous_matrices(x.tensor, v);
  return viewed(*copy);
}

// A bias of float32 or of the result's type, as the matrix that is added to each group.
ConstMatrix addend(const View& bias) {
  return {bias.data, 0, bias.size(1) == 1 ? 1 : bias.stride(1), bias.dim == 2 ? bias.stride(2) : 0};
}

}  // namespace

void multiply_groups_on_gpu(const GroupedCall& call) {
  std::optional<Tensor> copy_a, copy_b, wide_bias;
  const TensorRef a = with_unit_stride(call.a, copy_a), b = with_unit_stride(call.b, copy_b);
  GemmProblem p = problem_of(call, a.view, b.view);
  const bool activates = call.activation != Activation::none;
  const bool rounds = activates && (p.out_type == DType::f16 || p.out_type == DType::bf16);
  TensorRef bias = call.bias;
  if (bias && rounds)
    wide_bias = contiguous_matrices(bias.tensor, bias.view, kFloat), bias = viewed(*wide_bias);
  with_context(a.view, [&](OpContext& context, Device device, int threads) {
    const GemmProblem result = p;
    if (rounds) {
      p.out_type = DType::f32, p.out.row_stride = (p.n + 3) / 4 * 4;
      const int64_t rows = p.m * (p.groups.by == GroupedBy::k ? p.batch : 1);
      p.out.batch_stride = p.groups.by == GroupedBy::k ? p.m * p.out.row_stride : 0;
      p.out.data = context.allocate(size_t(rows * p.out.row_stride) * sizeof(float));
    }
    if (bias) p.c = addend(bias.view), p.beta = 1;
    if (p.groups.by == GroupedBy::n) p = p.transposed();
    const Kernel& row = select(p, device, threads, call.choice);
    const KernelRange range(row);
    row.gemm(p, context);
    tell_last_gemm_kernel(row.name);
    if (!activates) return;
    EpiloguePass pass = pass_after(result, p);
    pass.batch = p.groups.by == GroupedBy::k ? p.batch : 1, pass.epilogue = {call.activation};
    passes_of(device).epilogue(pass, context);
  });
}

}  // namespace fastgemm::torch_ops
