// torch.ops.fastgemm.scaled_mm: activation((scale_a * a) @ (scale_b * b) + bias) + residual, where a and b are
// codes of 8-bit floating-point numbers (core/fp8.h).
//
// Every code is exact in bfloat16, so products with scales of rows, columns or the whole are those of
// bfloat16 matrices, with sums in float32; a pass multiplies the sums by the scales, applies the rest and
// rounds once. Scales of blocks along k differ within a sum: operands are then widened to float32, times
// their scales, and multiplied in float32.
#include <array>
#include <vector>

#include "core/passes.h"
#include "torch/choices.h"
#include "torch/context.h"
#include "torch/fp8_arguments.h"
#include "torch/layer.h"
#include "torch/ops.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

struct Arguments {
  Tensor a, b, scale_a, scale_b;
  std::optional<Tensor> bias, residual;
  Blocks blocks_a, blocks_b;
  std::optional<std::string> activation;
  std::optional<int64_t> level;
  std::optional<std::string> kernel;
  std::optional<int32_t> out_dtype;

  // In the order of the schema in library.cpp; braces evaluate from left to right.
  explicit Arguments(StackReader s)
      : a(s.tensor()),
        b(s.tensor()),
        scale_a(s.tensor()),
        scale_b(s.tensor()),
        bias(s.optional_tensor()),
        residual(s.optional_tensor()),
        blocks_a{s.integer(), s.integer()},
        blocks_b{s.integer(), s.integer()},
        activation(s.optional_string()),
        level(s.optional_integer()),
        kernel(s.optional_string()),
        out_dtype(s.optional_dtype()) {}
};

// An operand of the product: codes, each times its scale if `scaled`, as a tensor of a wider type. Rows in
// memory remain rows in memory.
class [[gnu::visibility("hidden")]] Widened {
 public:
  Widened(const Fp8Operand& x, DType type, bool scaled) : tensor_(make(x, type)) {
    const View v(tensor_);
    const int64_t batch = v.dim == 3 ? v.size(3) : 1;
    with_context(v, [&](Context& context, Device device, int) {
      for (int64_t i = 0; i < batch; ++i) {
        WidenFp8 g = x.codes_of(i, scaled);
        g.type = type, g.out_row_stride = pitch_;
        g.out = static_cast<char*>(v.data) + i * g.rows * pitch_ * element_size(type);
        if (g.rows > 0 && g.cols > 0) passes_of(device).widen_fp8(g, context);
      }
    });
  }
  TensorRef ref() const { return viewed(tensor_); }

 private:
  // Rows begin at multiples of 16 numbers, so that kernels and the pass may read vectors.
  Tensor make(const Fp8Operand& x, DType type) {
    const View& v = x.view();
    const WidenFp8 g = x.codes_of(0, false);
    pitch_ = (g.cols + 15) / 16 * 16;
    const int64_t batch = v.dim == 3 ? v.size(3) : 1;
    const Tensor memory = empty_contiguous(std::array{batch, g.rows, pitch_}, torch_dtype(type), v);
    std::vector<int64_t> strides(size_t(v.dim), g.rows * pitch_);
    strides[size_t(v.dim - 2)] = x.lies_in_columns() ? 1 : pitch_;
    strides[size_t(v.dim - 1)] = x.lies_in_columns() ? pitch_ : 1;
    AtenTensorHandle handle;
    check(aoti_torch__reinterpret_tensor(memory.get(), v.dim, v.sizes, strides.data(), 0, &handle),
          "_reinterpret_tensor");
    return Tensor(handle);
  }

  int64_t pitch_ = 0;
  Tensor tensor_;
};

void check_operands(const View& a, const View& b) {
  if (a.dim != b.dim || (a.dim != 2 && a.dim != 3) || (a.dim == 3 && a.size(3) != b.size(3)))
    bad_value("a and b must be matrices, or batches of as many, got shapes " + shape_text(a.shape()) +
              " and " + shape_text(b.shape()));
  if (a.size(1) != b.size(2))
    bad_value("inner sizes differ: a has shape " + shape_text(a.shape()) + ", b " + shape_text(b.shape()));
  require_same_device("b", b, "a", a);
}

int32_t check_result(const std::optional<int32_t>& asked) {
  const int32_t type = asked.value_or(kBFloat16);
  if (type != kBFloat16 && type != kHalf && type != kFloat)
    bad_value("out_dtype must be torch.bfloat16, torch.float16 or torch.float32, got " + dtype_text(type));
  return type;
}

// A bias of the type of the result, or of 16 bits with a float32 result.
std::optional<Tensor> bias_of(const std::optional<Tensor>& bias, const View& a, int64_t n, int32_t result) {
  if (!bias) return std::nullopt;
  const View v(*bias);
  require_same_device("bias", v, "a", a);
  if (v.dim != 1 || v.size(1) != n)
    bad_value("bias has shape " + shape_text(v.shape()) + ", expected " + shape_text(std::array{n}) +
              ", a number for each column of b");
  const bool widens = result == kFloat && (v.dtype == kBFloat16 || v.dtype == kHalf);
  if (v.dtype != result && !widens)
    bad_value("bias has dtype " + dtype_text(v.dtype) + ", expected that of the result, " +
              dtype_text(result));
  return contiguous_matrices(bias->get(), v, result);
}

LineScales line_of(const BlockScales& s, bool of_rows) {
  return {static_cast<const float*>(s.data), of_rows ? s.row_stride : s.col_stride};
}

}  // namespace

void scaled_mm(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  const View given_a(args.a), given_b(args.b);
  check_operands(given_a, given_b);
  const Fp8Operand a("a", args.a, args.scale_a, args.blocks_a), b("b", args.b, args.scale_b, args.blocks_b);
  const int32_t result = check_result(args.out_dtype);
  std::vector<int64_t> shape(given_a.sizes, given_a.sizes + given_a.dim);
  shape.back() = given_b.size(1);
  const std::optional<Tensor> bias = bias_of(args.bias, given_a, shape.back(), result);
  std::optional<View> residual;
  if (args.residual) {
    residual.emplace(*args.residual);
    require_same_device("residual", *residual, "a", given_a);
    if (!std::ranges::equal(residual->shape(), shape) || residual->dtype != result)
      bad_value("residual has shape " + shape_text(residual->shape()) + " and dtype " +
                dtype_text(residual->dtype) + ", expected those of the result, " + shape_text(shape) +
                " and " + dtype_text(result));
  }

  // Scales of rows of a and of columns of b are those of sums. Others belong to the numbers.
  const bool of_sums = a.scales_are_lines(true) && b.scales_are_lines(false);
  const DType type = of_sums ? DType::bf16 : DType::f32;
  const Widened wide_a(a, type, !of_sums), wide_b(b, type, !of_sums);
  ProductCall call{.a = wide_a.ref(), .b = wide_b.ref()};
  call.choice = choice_of(args.level, args.kernel);
  call.out_dtype = kFloat;
  if (!of_sums) call.precision = Precision::ieee;
  const Tensor sums(multiply(call));

  const View s(sums);
  const Tensor out = empty_contiguous(shape, result, given_a);
  const View o(out);
  with_context(given_a, [&](Context& context, Device device, int) {
    const int64_t batch = s.dim == 3 ? s.size(3) : 1;
    EpiloguePass pass;
    pass.out_type = arithmetic_type("out", result), pass.m = s.size(2), pass.n = s.size(1);
    pass.sums = matrix_of<ConstMatrix>(s, false), pass.out = matrix_of<Matrix>(o, false);
    if (residual) pass.c = matrix_of<ConstMatrix>(*residual, false), pass.beta = 1.0;
    pass.epilogue.activation = activation_of(args.activation);
    if (bias) {
      pass.epilogue.has_bias = true, pass.epilogue.bias = View(*bias).data;
      pass.epilogue.bias_col_stride = 1;
    }
    if (pass.m == 0 || pass.n == 0) return;
    const auto at = [](const void* data, int64_t elements, DType of) {
      return static_cast<char*>(const_cast<void*>(data)) + elements * element_size(of);
    };
    for (int64_t i = 0; i < batch; ++i) {
      EpiloguePass p = pass;
      if (batch > 1) {
        p.sums.data = at(pass.sums.data, i * s.stride(3), DType::f32);
        p.out.data = at(pass.out.data, i * o.stride(3), pass.out_type);
        if (residual) p.c.data = at(pass.c.data, i * residual->stride(3), pass.out_type);
      }
      if (of_sums) {
        p.row_scales = line_of(a.scales_of(i), true);
        p.column_scales = line_of(b.scales_of(i), false);
      }
      passes_of(device).epilogue(p, context);
    }
  });
  return_tensor(stack, out);
}

}  // namespace fastgemm::torch_ops
