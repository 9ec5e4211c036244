// torch.ops.fastgemm.transpose: exchanges the last two dimensions; the result is contiguous.
#include <algorithm>

#include "core/select.h"
#include "torch/choices.h"
#include "torch/context.h"
#include "torch/kernel_range.h"
#include "torch/ops.h"

namespace fastgemm::torch_ops {
namespace {

struct Arguments {
  Tensor a;
  std::optional<int64_t> level;
  std::optional<std::string> kernel;
  Choice choice() const { return choice_of(level, kernel); }
  explicit Arguments(StackReader s)
      : a(s.tensor()), level(s.optional_integer()), kernel(s.optional_string()) {}
};

DType width_of(int32_t dtype) {
  switch (aoti_torch_dtype_element_size(dtype)) {
    case 1:
      return DType::bits8;
    case 2:
      return DType::bits16;
    case 4:
      return DType::bits32;
    case 8:
      return DType::bits64;
    case 16:
      return DType::bits128;
    default:
      bad_value("a has dtype " + dtype_text(dtype) + "; elements of 1, 2, 4, 8 or 16 bytes are accepted");
  }
}

void run(TransposeProblem whole, const Loops& loops, const Choice& choice, Context& context, Device device,
         int threads) {
  const int outer = std::max(loops.count - 1, 0);
  if (loops.count > 0) {
    const Loops::Dim& inner = loops.dims[size_t(outer)];
    whole.batch = inner.size;
    whole.src.batch_stride = inner.stride[0], whole.dst.batch_stride = inner.stride[1];
  }
  const Kernel& kernel = select(whole, device, threads, choice);
  for_each_index(loops, outer, [&](const std::array<int64_t, 4>& offset) {
    if (outer > 0 && context.stopped()) return;
    TransposeProblem p = whole;
    p.src.data = (const char*)whole.src.data + offset[0] * element_size(p.type);
    p.dst.data = (char*)whole.dst.data + offset[1] * element_size(p.type);
    const KernelRange range(kernel);
    kernel.transpose(p, context);
  });
}

Tensor transpose_into(const Arguments& args, const Tensor* given) {
  const View a(args.a);
  if (a.dim < 2) bad_value("a must have at least 2 dimensions, got shape " + shape_text(a.shape()));
  TransposeProblem p;
  p.type = width_of(a.dtype);
  p.rows = a.size(2), p.cols = a.size(1);
  p.src = matrix_of<ConstMatrix>(a, false);

  std::array<int64_t, kMaxDims> sizes;
  std::copy(a.sizes, a.sizes + a.dim, sizes.begin());
  std::swap(sizes[size_t(a.dim - 1)], sizes[size_t(a.dim - 2)]);
  const std::span<const int64_t> shape(sizes.data(), size_t(a.dim));
  Tensor out = given ? *given : empty_contiguous(shape, a.dtype, a);
  const View o(out);
  if (given) {
    require_same_device("out", o, "a", a);
    require_out(o, shape, a.dtype);
    require_no_overlap(o, "a", a);
  }
  const Choice choice = args.choice();
  for (const int64_t n : shape) {
    if (n != 0) continue;
    // an empty result still raises for a wrong level or kernel
    with_context(a, [&](Context&, Device device, int threads) { select(p, device, threads, choice); });
    return out;
  }
  p.dst = matrix_of<Matrix>(o, false);
  // The transpose of a^T into out^T, if the rows of out^T are contiguous.
  if (p.dst.col_stride != 1 && p.dst.row_stride == 1) {
    std::swap(p.rows, p.cols);
    p.src = p.src.transposed(), p.dst = p.dst.transposed();
  }
  const bool unit_source = p.src.row_stride == 1 || p.src.col_stride == 1;
  if (!unit_source || p.dst.col_stride != 1) {
    // Operands without a unit stride go through a contiguous tensor.
    Arguments again = args;
    if (!unit_source) again.a = contiguous_matrices(args.a.get(), a);
    if (p.dst.col_stride == 1) return transpose_into(again, &out);
    check(aoti_torch_copy_(out.get(), transpose_into(again, nullptr).get(), 0), "copy_");
    return out;
  }
  Loops loops;
  for (int64_t d = 0; d + 2 < a.dim; ++d) loops.push({a.sizes[d], {a.strides[d], o.strides[d], 0, 0}});
  with_context(a, [&](Context& context, Device device, int threads) {
    run(p, loops, choice, context, device, threads);
  });
  return out;
}

}  // namespace

void transpose(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  return_tensor(stack, transpose_into(args, nullptr));
}

void transpose_out(StableIValue* stack, uint64_t inputs, uint64_t) {
  const Tensor out = StackReader(stack + inputs - 1).tensor();
  const Arguments args{StackReader(stack)};
  transpose_into(args, &out);
}

}  // namespace fastgemm::torch_ops
