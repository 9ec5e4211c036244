// torch.ops.fastgemm.add and add_: a + alpha * b with broadcasting.
#include <algorithm>

#include "core/select.h"
#include "torch/choices.h"
#include "torch/complex.h"
#include "torch/context.h"
#include "torch/kernel_range.h"
#include "torch/ops.h"

namespace fastgemm::torch_ops {
namespace {

struct Arguments {
  Tensor a, b;
  double alpha;
  std::optional<int64_t> level;
  std::optional<std::string> kernel;
  Choice choice() const { return choice_of(level, kernel); }
  explicit Arguments(StackReader s)
      : a(s.tensor()),
        b(s.tensor()),
        alpha(s.number()),
        level(s.optional_integer()),
        kernel(s.optional_string()) {}
};

struct Shape {
  std::array<int64_t, kMaxDims> sizes;
  size_t dim = 0;
  bool empty = false;
  std::span<const int64_t> get() const { return {sizes.data(), dim}; }
};

int64_t size_at(const View& v, size_t from_end) {
  return from_end <= size_t(v.dim) ? v.size(int64_t(from_end)) : 1;
}
int64_t stride_at(const View& v, size_t from_end) {
  return size_at(v, from_end) == 1 ? 0 : v.stride(int64_t(from_end));
}

Shape broadcast(const View& a, const View& b) {
  Shape s;
  s.dim = size_t(std::max(a.dim, b.dim));
  for (size_t d = 0; d < s.dim; ++d) {
    const int64_t x = size_at(a, s.dim - d), y = size_at(b, s.dim - d);
    if (x != y && x != 1 && y != 1)
      bad_value("shapes of a " + shape_text(a.shape()) + " and b " + shape_text(b.shape()) +
                " do not broadcast");
    s.sizes[d] = x == 1 ? y : x;
    s.empty |= s.sizes[d] == 0;
  }
  return s;
}

// The last two of the first `count` merged dimensions become the rows and columns of the problem. Their
// strides are divided by `step`.
AddProblem problem_of(AddProblem p, const Loops& loops, int count, int64_t step = 1) {
  const auto set = [&](const Loops::Dim& dim, bool columns) {
    (columns ? p.cols : p.rows) = dim.size;
    (columns ? p.a.col_stride : p.a.row_stride) = dim.stride[0] / step;
    (columns ? p.b.col_stride : p.b.row_stride) = dim.stride[1] / step;
    (columns ? p.out.col_stride : p.out.row_stride) = dim.stride[2] / step;
  };
  p.rows = p.cols = 1;
  p.a.col_stride = p.b.col_stride = p.out.col_stride = 1;
  p.a.row_stride = p.b.row_stride = p.out.row_stride = 1;
  if (count > 0) set(loops.dims[size_t(count - 1)], true);
  if (count > 1) set(loops.dims[size_t(count - 2)], false);
  return p;
}

// The sum as a problem of complex numbers, for kernels of a CPU, unless it is one of plain numbers. Where an
// operand has no contiguous row (broadcast, strided or transposed ones), the parts are a dimension of their
// own, and rows of a problem would have two numbers.
std::optional<AddProblem> in_complex_numbers(const AddProblem& parts, const Loops& loops) {
  if (loops.count < 2 || loops.dims[size_t(loops.count - 1)].size != 2) return std::nullopt;
  AddProblem p = problem_of(parts, loops, loops.count - 1, 2);
  p.type = parts.type == DType::f64   ? DType::bits128
           : parts.type == DType::f32 ? DType::bits64
                                      : DType::bits32;
  return p;
}

// A problem of merged dimensions, and the loop around it.
void run(AddProblem p, const Loops& loops, bool two_parts, const Choice& choice, Context& context,
         Device device, int threads) {
  const int part_size = element_size(p.type);
  std::optional<AddProblem> complex;
  if (two_parts && device == Device::cpu) complex = in_complex_numbers(p, loops);
  p = problem_of(p, loops, loops.count);
  AddProblem asked = p;  // decides by the number of parts
  if (complex) asked.rows = complex->rows, asked.cols = 2 * complex->cols;
  const Kernel& kernel = select(asked, device, threads, choice);
  int inner = 2;
  if (complex && kernel.complex) p = *complex, inner = 3;
  const int outer = std::max(loops.count - inner, 0);
  for_each_index(loops, outer, [&](const std::array<int64_t, 4>& offset) {
    if (outer > 0 && context.stopped()) return;
    AddProblem q = p;
    q.a.data = (const char*)p.a.data + offset[0] * part_size;
    q.b.data = (const char*)p.b.data + offset[1] * part_size;
    q.out.data = (char*)p.out.data + offset[2] * part_size;
    const KernelRange range(kernel);
    kernel.add(q, context);
  });
}

// given: the tensor for the result, a itself for add_; null if the result is a new tensor.
Tensor add_into(const Arguments& args, const Tensor* given) {
  const View a(args.a), b(args.b);
  require_same_device("b", b, "a", a);
  AddProblem p;
  const bool two_parts = is_complex(a.dtype);  // real and imaginary parts are added separately
  p.type = arithmetic_type("a", two_parts ? part_dtype(a.dtype) : a.dtype);
  if (b.dtype != a.dtype)
    bad_value("b has dtype " + dtype_text(b.dtype) + ", but a has " + dtype_text(a.dtype) +
              "; they must be equal");
  p.alpha = scale_of("alpha", args.alpha, p.type);

  const Shape shape = broadcast(a, b);
  const Tensor out = given ? *given : empty_contiguous(shape.get(), a.dtype, a);
  const View o(out);
  if (given) {
    require_same_device("out", o, "a", a);
    const char* const name = given->get() == args.a.get() ? "a" : "out";
    require_out(o, shape.get(), a.dtype, name);
    if (!same_view(o, a)) require_no_overlap(o, "a", a, name);
    if (!same_view(o, b)) require_no_overlap(o, "b", b, name);
  }
  const Choice choice = args.choice();
  if (shape.empty) {
    // an empty result still raises for a wrong level or kernel
    with_context(a, [&](Context&, Device device, int threads) { select(p, device, threads, choice); });
    return out;
  }
  Loops loops;
  const int64_t step = two_parts ? 2 : 1;
  for (size_t d = 0; d < shape.dim; ++d) {
    const size_t from_end = shape.dim - d;
    loops.push(
        {shape.sizes[d],
         {step * stride_at(a, from_end), step * stride_at(b, from_end), step * stride_at(o, from_end), 0}});
  }
  if (two_parts) loops.push({2, {1, 1, 1, 0}});
  p.a.data = a.data, p.b.data = b.data, p.out.data = o.data;
  with_context(a, [&](Context& context, Device device, int threads) {
    run(p, loops, two_parts, choice, context, device, threads);
  });
  return out;
}

}  // namespace

void add(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  return_tensor(stack, add_into(args, nullptr));
}

void add_out(StableIValue* stack, uint64_t inputs, uint64_t) {
  const Tensor out = StackReader(stack + inputs - 1).tensor();
  const Arguments args{StackReader(stack)};
  add_into(args, &out);
}

void add_in_place(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  const Tensor out = args.a;
  add_into(args, &out);
}

}  // namespace fastgemm::torch_ops
