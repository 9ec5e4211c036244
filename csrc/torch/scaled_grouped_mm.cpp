// torch.ops.fastgemm.scaled_grouped_mm: products of groups of rows of a (M, K) by a matrix of b (G, K, N)
// each, of 8-bit floating-point numbers with scales.
//
// A row of the kernel table that takes codes and groups multiplies all groups by one kernel. A CPU multiplies
// one group after the other, each as a scaled product. Other GPUs and rows multiply the numbers as float32:
// codes times their scales.
#include "torch/scaled_grouped_mm.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/simulator.h"
#include "torch/choices.h"
#include "torch/context.h"
#include "torch/grouped_mm.h"
#include "torch/launch_row.h"
#include "torch/ops.h"
#include "torch/part.h"
#include "torch/scalar_types.h"
#include "torch/scaled_mm.h"
#include "torch/widened.h"

namespace fastgemm::torch_ops {
namespace {

// In the order of the schema in library.cpp; braces evaluate from left to right.
struct Arguments {
  Tensor a, b, scale_a, scale_b, offs;
  Blocks blocks_a, blocks_b;
  std::optional<int64_t> level;
  std::optional<std::string> kernel;
  std::optional<int32_t> out_dtype;

  explicit Arguments(StackReader s)
      : a(s.tensor()),
        b(s.tensor()),
        scale_a(s.tensor()),
        scale_b(s.tensor()),
        offs(s.tensor()),
        blocks_a{s.integer(), s.integer()},
        blocks_b{s.integer(), s.integer()},
        level(s.optional_integer()),
        kernel(s.optional_string()),
        out_dtype(s.optional_dtype()) {}
};

void check_call(const ScaledGroupsCall& call) {
  const View &a = call.a.view, &b = call.b.view, &offs = call.offs.view;
  if (a.dim != 2 || b.dim != 3)
    bad_value("a must be a matrix with groups of rows and b have a matrix for each group, got shapes " +
              shape_text(a.shape()) + " and " + shape_text(b.shape()));
  if (a.size(1) != b.size(2))
    bad_value("inner sizes differ: a has shape " + shape_text(a.shape()) + ", b " + shape_text(b.shape()));
  for (const auto& [name, v] : {std::pair("b", &b), std::pair("offs", &offs)})
    require_same_device(name, *v, "a", a);
  if (offs.dim != 1 || offs.dtype != kInt32 || offs.size(1) != b.size(3))
    bad_value("offs has shape " + shape_text(offs.shape()) + " and dtype " + dtype_text(offs.dtype) +
              ", expected torch.int32 of shape " + shape_text(std::array{b.size(3)}) +
              ", one for each matrix of b");
  if (call.blocks_a.rows > 1)
    bad_value(
        "scales of a belong to single rows or to all of it: blocks of rows would reach into other groups");
  const int32_t type = call.out_dtype;
  if (type != kBFloat16 && type != kHalf && type != kFloat)
    bad_value("out_dtype must be torch.bfloat16, torch.float16 or torch.float32, got " + dtype_text(type));
}

bool is_on_cpu(const View& v) { return v.device_type == aoti_torch_device_type_cpu() && !simulating(); }

std::optional<Tensor> in_dtype(std::optional<Tensor> x, int32_t dtype) {
  if (!x || View(*x).dtype == dtype) return x;
  return contiguous_matrices(x->get(), View(*x), dtype);
}

// The product by a row that takes codes and groups; none if no allowed row does.
std::optional<Tensor> multiply_codes(const ScaledGroupsCall& call, const Fp8Operand& a, const Fp8Operand& b) {
  std::optional<Tensor> out;
  const int32_t type = call.out_dtype == kHalf ? int32_t(kFloat) : call.out_dtype;
  with_context(call.a.view, [&](OpContext& context, Device device, int threads) {
    GemmProblem p;
    p.type = product_type(a.code(), b.code()), p.out_type = arithmetic_type("out", type);
    p.batch = call.b.view.size(3), p.m = a.view().size(2), p.k = a.view().size(1), p.n = b.view().size(1);
    p.a = a.matrix(0), p.scales_a = a.scales_of(0);
    p.b = b.matrix(0), p.b.batch_stride = b.matrix_stride();
    p.scales_b = b.scales_of(0), p.scales_b.group_stride = b.scales_stride();
    p.out = {nullptr, p.n, 1, 0};
    p.groups = {GroupedBy::m, static_cast<const int32_t*>(call.offs.view.data)};
    // In this kernel, the order in which a row of the result is summed does not depend on the other rows.
    const Choice choice = call.choice.kernel == "invariant" ? Choice{0, "grouped_scaled_wgmma"} : call.choice;
    if (!is_taken(p, device, choice)) return;
    out = empty_contiguous(std::array{p.m, p.n}, type, call.a.view);
    p.out.data = View(*out).data;
    launch_row(select(p, device, threads, choice), p, choice, {context, device, threads});
  });
  return in_dtype(std::move(out), call.out_dtype);
}

Part<2> rows_of_scales(const TensorRef& scales, bool is_one, int64_t begin, int64_t rows) {
  if (is_one) return {scales, 0, {1, 1}, {1, 1}};  // of any dimension
  return matrix_in(scales, begin * scales.view.stride(2), rows, scales.view.size(1));
}

// Matrix `index` of a batch; the only one stands for all.
Part<2> member(const TensorRef& all, int64_t index) {
  return matrix_in(all, index * all.view.stride(3), all.view.size(2), all.view.size(1));
}

Tensor multiply_on_cpu(const ScaledGroupsCall& call) {
  const int64_t n = call.b.view.size(1), rows = call.a.view.size(2);
  const Tensor out = empty_contiguous(std::array{rows, n}, call.out_dtype, call.a.view);
  const TensorRef result = viewed(out);
  int64_t begin = 0;
  for (int64_t i = 0; i < call.offs.view.size(1); ++i) {
    const int64_t end = end_of_group(call.offs.view, i, begin, rows);
    const Part<2> a = matrix_in(call.a, begin * call.a.view.stride(2), end - begin, call.a.view.size(1));
    const Part<2> b = member(call.b, i), scale_b = member(call.scale_b, i);
    const Part<2> scale_a = rows_of_scales(call.scale_a, call.blocks_a.rows == 0, begin, end - begin);
    const ScaledCall part{a.ref(),       b.ref(),       scale_a.ref(), scale_b.ref(), {},
                          call.blocks_a, call.blocks_b, call.choice,   call.out_dtype};
    // An empty product is checked, too: a wrong level is an error in every case.
    if (i == 0 || end > begin) {
      const Tensor made(multiply_scaled(part));
      const Part<2> to = matrix_in(result, begin * n, end - begin, n);
      check(aoti_torch_copy_(to.ref().tensor, made.get(), 0), "copy_");
    }
    begin = end;
  }
  const int64_t size = int64_t(aoti_torch_dtype_element_size(call.out_dtype));
  if (rows > begin && n > 0)
    std::memset(static_cast<char*>(result.view.data) + begin * n * size, 0,
                size_t((rows - begin) * n * size));
  return out;
}

// Computes the call by a product of float32 numbers.
Tensor multiply_numbers(const ScaledGroupsCall& call, const Fp8Operand& a, const Fp8Operand& b) {
  const Widened wide_a(a, DType::f32, true), wide_b(b, DType::f32, true);
  GroupedCall product{.a = viewed(wide_a.tensor()), .b = viewed(wide_b.tensor()), .offs = call.offs};
  product.choice = call.choice, product.precision = Precision::ieee;
  return *in_dtype(Tensor(multiply_groups(product, std::nullopt)), call.out_dtype);
}

}  // namespace

AtenTensorHandle multiply_scaled_groups(const ScaledGroupsCall& given) {
  ScaledGroupsCall call = given;
  check_call(call);
  std::optional<Tensor> offs;
  if (call.offs.view.size(1) > 1 && call.offs.view.stride(1) != 1)
    offs = contiguous_matrices(call.offs.tensor, call.offs.view), call.offs = viewed(*offs);
  const Fp8Operand a("a", shared(call.a), shared(call.scale_a), call.blocks_a);
  const Fp8Operand b("b", shared(call.b), shared(call.scale_b), call.blocks_b);
  const Tensor out = [&] {
    if (is_on_cpu(call.a.view)) return multiply_on_cpu(call);
    if (std::optional<Tensor> made = multiply_codes(call, a, b)) return std::move(*made);
    return multiply_numbers(call, a, b);
  }();
  return new_handle(out.get());
}

void scaled_grouped_mm(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  ScaledGroupsCall call{.a = viewed(args.a), .b = viewed(args.b), .scale_a = viewed(args.scale_a)};
  call.scale_b = viewed(args.scale_b), call.offs = viewed(args.offs);
  call.blocks_a = args.blocks_a, call.blocks_b = args.blocks_b;
  call.choice = choice_of(args.level, args.kernel);
  call.out_dtype = args.out_dtype.value_or(kBFloat16);
  stack[0] = torch::stable::detail::from(multiply_scaled_groups(call));
}

}  // namespace fastgemm::torch_ops
