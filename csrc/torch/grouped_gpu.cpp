// Products of groups by kernels that read the ends of the groups on the GPU, or on the simulated one.
#include <algorithm>
#include <array>

#include "core/can_run.h"
#include "core/gpu.h"
#include "core/passes.h"
#include "core/simulator.h"
#include "torch/context.h"
#include "torch/grouped_mm.h"
#include "torch/launch_row.h"
#include "torch/scalar_types.h"
#include "torch/scaled_mm.h"

namespace fastgemm::torch_ops {
namespace {

// The matrices of an operand: one for each group, or one with all groups.
template <class M>
M matrices_of(const View& v) {
  M m = matrix_of<M>(v, false);
  m.batch_stride = v.dim == 3 ? v.stride(3) : 0;
  return m;
}

// The product and its bias, without an activation.
GemmProblem problem_of(const GroupedCall& call, const View& bias) {
  const View &a = call.a.view, &b = call.b.view;
  GemmProblem p;
  p.type = call.type, p.out_type = arithmetic_type("out", call.out.view.dtype);
  p.precision = call.precision.value_or(Precision::ieee);
  p.batch = call.groups, p.m = call.rows ? call.rows.view.size(1) : a.size(2), p.k = a.size(1),
  p.n = b.size(1);
  if (call.gated) p.gated = true, p.n /= 2;
  p.a = matrices_of<ConstMatrix>(a), p.b = matrices_of<ConstMatrix>(b);
  p.out = matrices_of<Matrix>(call.out.view);
  p.groups = {call.by, static_cast<const int32_t*>(call.offs.view.data)};
  if (call.rows)
    p.groups.rows = static_cast<const int32_t*>(call.rows.view.data), p.groups.rows_of_a = a.size(2);
  if (!call.bias) return p;
  p.c = {bias.data, 0, bias.size(1) == 1 ? 1 : bias.stride(1), bias.dim == 2 ? bias.stride(2) : 0};
  p.beta = 1;
  return p;
}

// Whether a result has a matrix for each group.
bool has_one_each(const GemmProblem& p) { return p.groups.by == GroupedBy::k; }

// Gives the product a result of its own, with contiguous rows.
void use_scratch(GemmProblem& p, OpContext& context) {
  const int size = element_size(p.out_type), unit = 16 / size;
  const int64_t pitch = (p.n + unit - 1) / unit * unit;
  const size_t matrices = has_one_each(p) ? size_t(p.batch) : 1;
  p.out = {nullptr, pitch, 1, has_one_each(p) ? p.m * pitch : 0};
  p.out.data = context.allocate(matrices * size_t(p.m * pitch) * size_t(size));
}

// The row whose sums do not depend on the number of rows: the first one that takes the type. Every row that
// takes groups adds a group's k in a fixed order, but different rows have different orders.
const Kernel& invariant_row(const GemmProblem& p, Device device, const Choice& choice) {
  for (const std::string_view name : {"grouped_wgmma", "grouped_mma", "small"})
    for (const Kernel& k : kernels_for(device))
      if (k.op == Op::gemm && k.device == device && k.name == name && contains(k.dtypes, p.type) &&
          can_run(k, p))
        return k;
  return select(p, device, 0, choice);  // throws why it cannot run
}

// `is_scratch`: the result is in scratch memory of the context. It would be lost if another row were tried,
// because that frees the scratch memory first.
void multiply_by_row(const GemmProblem& p, const GroupedCall& call, const Place& at, bool is_scratch) {
  const bool invariant = call.choice.kernel == "invariant";
  GemmProblem q = p;
  q.invariant = invariant;
  const Kernel& row =
      invariant ? invariant_row(q, at.device, call.choice) : select(q, at.device, at.threads, call.choice);
  const Choice this_one{row.level, row.name};
  launch_row(row, q, invariant || is_scratch ? this_one : call.choice, at);
}

// Groups of columns are groups of rows of the transposed product, whose result is transposed again.
void multiply_columns(const GemmProblem& p, const GroupedCall& call, const Place& at) {
  GemmProblem turned = p.transposed();
  use_scratch(turned, at.context);
  multiply_by_row(turned, call, at, true);
  TransposeProblem back;
  const int size = element_size(p.out_type);
  back.type = size == 1   ? DType::bits8
              : size == 2 ? DType::bits16
              : size == 4 ? DType::bits32
                          : DType::bits64;
  back.rows = p.n, back.cols = p.m;
  back.src = {turned.out.data, turned.out.row_stride, 1, 0}, back.dst = p.out;
  if (back.rows * back.cols > 0) select(back, at.device, at.threads, {}).transpose(back, at.context);
}

}  // namespace

bool torch_is_faster(const View& a, const View& b) {
  constexpr int64_t kManyRows = 256, kLongK = 6144;
  if (a.device_type == aoti_torch_device_type_cpu() || a.dtype != kBFloat16) return false;
  if (a.dim != 2 || b.dim != 3 || a.size(2) < kManyRows * b.size(3) || a.size(1) < kLongK) return false;
  return capability_of(a) == 90;
}

void multiply_groups_on_gpu(const GroupedCall& call) try {
  const int32_t type = call.out.view.dtype;
  // Activations are applied to sums in float32, which are then rounded once.
  const bool activates = call.activation != Activation::none;
  const bool rounds = activates && (type == kBFloat16 || type == kHalf);
  std::optional<Tensor> wide_bias;
  if (call.bias && rounds) wide_bias = contiguous_matrices(call.bias.tensor, call.bias.view, kFloat);
  if (std::max({call.a.view.size(1), call.a.view.size(2), call.b.view.size(1), call.out.view.size(2)}) >
      int64_t{1} << 30)
    throw CannotRun("a product of groups has up to 2^30 rows, columns and values of k on a GPU");
  const GemmProblem p = problem_of(call, wide_bias ? View(*wide_bias) : call.bias.view);
  with_context(call.a.view, [&](OpContext& context, Device device, int threads) {
    const Place at{context, device, threads};
    GemmProblem sums = p;
    if (rounds) sums.out_type = DType::f32, use_scratch(sums, context);
    if (p.groups.by == GroupedBy::n)
      multiply_columns(sums, call, at);
    else
      multiply_by_row(sums, call, at, rounds);
    if (!activates) return;
    EpiloguePass pass = pass_after(p, sums);
    pass.batch = has_one_each(p) ? p.batch : 1, pass.c = {}, pass.beta = 0;
    pass.epilogue = {.activation = call.activation};
    passes_of(device).epilogue(pass, context);
  });
} catch (const OutOfWorkspace& refusal) {  // of a result in scratch memory
  throw OutOfMemory("fastgemm: out of memory: a product of groups needs a workspace of at least " +
                    std::to_string(refusal.needed()) + " bytes, and " + refusal.what());
}

}  // namespace fastgemm::torch_ops
