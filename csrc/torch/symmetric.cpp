#include "torch/symmetric.h"

#include <algorithm>

#include "core/passes.h"

namespace fastgemm::torch_ops {
namespace {

// Whether the caller named neither level nor kernel, or the kernel for symmetric results.
bool may_look(const Choice& choice) {
  return choice.kernel == kSymmetric || (choice.level == 0 && choice.kernel.empty());
}

}  // namespace

bool is_own_transpose(const ProductCall& call) {
  const View &a = call.a.view, &b = call.b.view;
  if (a.data != b.data || a.dtype != b.dtype || a.dim != b.dim || a.dim < 2) return false;
  const bool turned = call.trans_a == call.trans_b;  // then b's view must be the transpose of a's
  for (int64_t d = 1; d <= a.dim; ++d) {
    const int64_t e = d <= 2 && turned ? 3 - d : d;
    if (a.size(d) != b.size(e) || (a.size(d) != 1 && a.stride(d) != b.stride(e))) return false;
  }
  return true;
}

Symmetry symmetry_of(const ProductCall& call, const GemmProblem& p) {
  if (call.symmetry.known) {
    if (p.n != p.m * call.symmetry.parts)
      bad_value("symmetric=True is for square results, not for " +
                shape_text(std::array{p.m, p.n / call.symmetry.parts}));
    return call.symmetry;
  }
  const bool is_sum = (call.c && call.beta != 0.0) || p.finishes();
  Symmetry found;
  found.known = !is_sum && p.m == p.n && may_look(call.choice) && is_own_transpose(call);
  return found;
}

bool needs_own_result(const GemmProblem& p) {
  const bool by_rows = p.out.col_stride == 1, by_columns = p.out.row_stride == 1;
  return !by_rows && (!by_columns || p.symmetry.asked);
}

void mirror_result(const View& out, const Symmetry& symmetry, Device device, Context& context) {
  Mirror whole{.bytes = int(aoti_torch_dtype_element_size(out.dtype)) * symmetry.parts};
  whole.conjugated = symmetry.conjugated;
  whole.n = out.size(2);
  whole.out.row_stride = out.stride(2) / symmetry.parts, whole.out.col_stride = 1;
  Loops loops;
  for (int64_t d = out.dim; d >= 3; --d) loops.push({out.size(d), {out.stride(d) / symmetry.parts, 0, 0, 0}});
  const int outer = std::max(loops.count - 1, 0);
  if (loops.count > 0) {
    whole.batch = loops.dims[size_t(outer)].size;
    whole.out.batch_stride = loops.dims[size_t(outer)].stride[0];
  }
  for_each_index(loops, outer, [&](const std::array<int64_t, 4>& offset) {
    Mirror m = whole;
    m.out.data = static_cast<char*>(out.data) + offset[0] * whole.bytes;
    passes_of(device).mirror(m, context);
  });
}

}  // namespace fastgemm::torch_ops
