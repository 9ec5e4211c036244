#include "torch/queries.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "torch/gemm_plan.h"

namespace fastgemm::torch_ops {
namespace {

// A stand-in for the address of a result that is not allocated yet. It is aligned like memory of torch's
// allocator on a GPU: to 512 bytes.
constexpr uintptr_t kAllocated = 512;

View view_of(const Layout& layout, int32_t dtype) {
  const size_t dim = layout.sizes.size();
  if (dim < 2 || dim > size_t(kMaxDims) || layout.strides.size() != dim)
    throw std::invalid_argument("a product takes operands of 2 to " + std::to_string(kMaxDims) +
                                " dimensions");
  View v;
  v.data = reinterpret_cast<void*>(layout.address);
  v.sizes = layout.sizes.data(), v.strides = layout.strides.data();
  v.dim = int64_t(layout.sizes.size());
  v.dtype = dtype;
  return v;
}

void make_contiguous(Layout& layout) {
  const ContiguousMatrices plan(view_of(layout, 0));
  layout.strides.assign(plan.strides.begin(), plan.strides.begin() + int64_t(layout.sizes.size()));
  layout.address = kAllocated;
}

Layout allocated(std::span<const int64_t> shape) {
  Layout layout{kAllocated, {shape.begin(), shape.end()}, std::vector<int64_t>(shape.size())};
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0; step *= std::max<int64_t>(shape[d], 1)) layout.strides[d] = step;
  return layout;
}

bool needs_copy(const View& v) {
  return is_scattered(matrix_of<ConstMatrix>(v, false), v.size(2), v.size(1));
}

}  // namespace

GemmProblem problem_of(const Layout& a, const Layout& b, DType type) {
  const auto [of_a, of_b] = operand_types(type);
  const int32_t code = torch_dtype(of_a);
  Layout operands[] = {a, b};
  for (Layout& operand : operands)
    if (needs_copy(view_of(operand, code))) make_contiguous(operand);
  const View x = view_of(operands[0], code), y = view_of(operands[1], torch_dtype(of_b));
  Gemm g = describe(x, y, false, false);
  g.problem.type = type;
  const Layout result = allocated(g.result_shape());
  const View out = view_of(result, code);
  g.problem.out = matrix_of<Matrix>(out, false);
  plan_batches(g, x, y, nullptr, out);
  return g.innermost();
}

TransposeProblem problem_of(const Layout& a, DType width) {
  Layout source = a;
  if (needs_copy(view_of(source, 0))) make_contiguous(source);
  const View v = view_of(source, 0);
  TransposeProblem p;
  p.type = width, p.rows = v.size(2), p.cols = v.size(1);
  p.src = matrix_of<ConstMatrix>(v, false);
  std::vector<int64_t> shape = source.sizes;
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  const Layout result = allocated(shape);
  const View out = view_of(result, 0);
  p.dst = matrix_of<Matrix>(out, false);
  Loops loops;
  for (int64_t d = 0; d + 2 < v.dim; ++d) loops.push({v.sizes[d], {v.strides[d], out.strides[d], 0, 0}});
  if (loops.count > 0) {
    const Loops::Dim& inner = loops.dims[size_t(loops.count - 1)];
    p.batch = inner.size, p.src.batch_stride = inner.stride[0], p.dst.batch_stride = inner.stride[1];
  }
  return p;
}

}  // namespace fastgemm::torch_ops
