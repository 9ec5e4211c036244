// torch.ops.fastgemm.scaled_mm: activation((scale_a * a) @ (scale_b * b) + bias) + residual, where a and b
// are codes of 8-bit floating-point numbers (core/fp8.h).
//
// A row of the kernel table that takes codes multiplies them as they are, if the caller allows one. For other
// rows they are widened. Every code is exact in bfloat16 and float16, so products with scales of rows,
// columns or the whole are those of 16-bit matrices, whose sums in float32 are multiplied by the scales
// (GemmProblem::scales). Scales of blocks along k differ within a sum. Rows of a CPU that multiply sums of
// parts of k by scales (core/part_scales.h) take bfloat16; for others, operands are widened to float32, times
// their scales. On a CPU, rows read b in place as a packed weight, if it is stored like one.
#include "torch/scaled_mm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/can_run.h"
#include "core/passes.h"
#include "core/simulator.h"
#include "strategies/strategies.h"
#include "torch/choices.h"
#include "torch/context.h"
#include "torch/fp8_arguments.h"
#include "torch/launch_row.h"
#include "torch/layer.h"
#include "torch/ops.h"
#include "torch/plans.h"
#include "torch/scalar_types.h"
#include "torch/widened.h"

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

  explicit Arguments(const ScaledCall& call)
      : a(shared(call.a)),
        b(shared(call.b)),
        scale_a(shared(call.scale_a)),
        scale_b(shared(call.scale_b)),
        blocks_a(call.blocks_a),
        blocks_b(call.blocks_b),
        out_dtype(call.out_dtype) {
    if (call.bias) bias = shared(call.bias);
    if (call.choice.level) level = call.choice.level;
    if (!call.choice.kernel.empty()) kernel = std::string(call.choice.kernel);
  }
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

// The tensor converted to a type, or the tensor itself if it has that type.
std::optional<Tensor> in_type(const Tensor& x, int32_t dtype) {
  const View v(x);
  return v.dtype == dtype ? x : contiguous_matrices(x.get(), v, dtype);
}

// Throws std::invalid_argument unless the terms fit a result of this shape and type. A bias may also have 16
// bits if the result has 32.
void check_terms(const std::optional<Tensor>& bias, const std::optional<Tensor>& residual, const View& a,
                 std::span<const int64_t> shape, int32_t result) {
  if (bias) {
    const View v(*bias);
    require_same_device("bias", v, "a", a);
    if (v.dim != 1 || v.size(1) != shape.back())
      bad_value("bias has shape " + shape_text(v.shape()) + ", expected " +
                shape_text(std::array{shape.back()}) + ", a number for each column of b");
    const bool widens = result == kFloat && (v.dtype == kBFloat16 || v.dtype == kHalf);
    if (v.dtype != result && !widens)
      bad_value("bias has dtype " + dtype_text(v.dtype) + ", expected that of the result, " +
                dtype_text(result));
  }
  if (!residual) return;
  const View v(*residual);
  require_same_device("residual", v, "a", a);
  if (!std::ranges::equal(v.shape(), shape) || v.dtype != result)
    bad_value("residual has shape " + shape_text(v.shape()) + " and dtype " + dtype_text(v.dtype) +
              ", expected those of the result, " + shape_text(shape) + " and " + dtype_text(result));
}

// Matrix i of a batch. A tensor of 2 dimensions is returned as it is.
Tensor matrix_of_batch(const Tensor& x, int64_t i) {
  const View v(x);
  if (v.dim == 2) return x;
  AtenTensorHandle handle;
  check(aoti_torch__reinterpret_tensor(x.get(), 2, v.sizes + 1, v.strides + 1, i * v.stride(3), &handle),
        "_reinterpret_tensor");
  return Tensor(handle);
}

// The call as a product of wider numbers.
class [[gnu::visibility("hidden")]] Scaled {
 public:
  explicit Scaled(const Arguments& args)
      : a_("a", args.a, args.scale_a, args.blocks_a), b_("b", args.b, args.scale_b, args.blocks_b) {
    choice_ = choice_of(args.level, args.kernel);
    // Scales of rows of a and of columns of b multiply sums. Other scales multiply the numbers before the
    // product, and so do all scales if torch multiplies, because it would round sums of 16-bit numbers to 16
    // bits before they are scaled.
    of_sums_ = a_.scales_are_lines(true) && b_.scales_are_lines(false) && choice_.kernel != kTorchRow;
    result_ = check_result(args.out_dtype);
    type_ = !of_sums_ ? DType::f32 : result_ == kHalf ? DType::f16 : DType::bf16;
    product_ = of_sums_ ? result_ : int32_t(kFloat);
    codes_of_b_ = &args.b;
    terms_.activation = activation_of(args.activation);
    shape_.assign(a_.view().sizes, a_.view().sizes + a_.view().dim);
    shape_.back() = b_.view().size(1);
    check_terms(args.bias, args.residual, a_.view(), shape_, result_);
    if (args.bias) terms_.bias = in_type(*args.bias, product_);
    if (args.residual) terms_.residual = in_type(*args.residual, product_);
  }

  Tensor multiply_all() {
    if (std::optional<Tensor> made = multiply_codes()) return std::move(*made);
    const Widened wide_a(a_, type_, !of_sums_);
    const std::optional<PackedWeight> weight = takes_weights() ? b_.as_weight(!of_sums_) : std::nullopt;
    std::optional<Widened> wide_b;
    if (!weight) wide_b.emplace(b_, type_, !of_sums_);
    if (shape_.size() == 2)
      return *in_type(multiply_matrix(0, wide_a.tensor(), wide_b, weight, nullptr), result_);
    const Tensor out = empty_contiguous(shape_, product_, a_.view());
    for (int64_t i = 0; i < shape_[0]; ++i) {
      const Tensor part = matrix_of_batch(out, i);
      multiply_matrix(i, matrix_of_batch(wide_a.tensor(), i), wide_b, weight, &part);
    }
    return *in_type(out, result_);
  }

 private:
  // The product by a row that takes codes, or on a CPU scales of parts of k; none if no allowed row does. Its
  // results are float32 or bfloat16.
  std::optional<Tensor> multiply_codes() {
    std::optional<Tensor> out;
    const int32_t type = result_ == kHalf ? int32_t(kFloat) : result_;
    GemmProblem p = problem_of_codes(type);
    std::optional<Widened> wide_a, wide_b;
    if (on_cpu()) {
      if (of_sums_ || !is_taken(strategies::chosen_for(p), Device::cpu, choice_)) return out;
      wide_a.emplace(a_, p.type, false);
      if (!p.packed.is_given()) wide_b.emplace(b_, p.type, false);
    }
    with_context(a_.view(), [&](OpContext& context, Device device, int threads) {
      if (!is_taken(strategies::chosen_for(p), device, choice_)) return;
      if (terms_.bias) terms_.bias = in_type(*terms_.bias, type);
      if (terms_.residual) terms_.residual = in_type(*terms_.residual, type);
      out = empty_contiguous(shape_, type, a_.view());
      const Kernel* row = nullptr;
      for (int64_t i = 0; i < (shape_.size() == 3 ? shape_[0] : 1); ++i) {
        set_addresses(p, i, *out);
        if (wide_a) p.a = matrix_of<ConstMatrix>(View(matrix_of_batch(wide_a->tensor(), i)), false);
        if (wide_b) p.b = matrix_of<ConstMatrix>(View(matrix_of_batch(wide_b->tensor(), i)), false);
        if (!row) row = &select(strategies::chosen_for(p), device, threads, choice_);
        launch_row(*row, p, choice_, {context, device, threads});
        context.start_over();
      }
    });
    return out ? in_type(*out, result_) : out;
  }
  GemmProblem problem_of_codes(int32_t type) const {
    GemmProblem p;
    p.type = product_type(a_.code(), b_.code()), p.out_type = arithmetic_type("out", type);
    p.m = a_.view().size(2), p.k = a_.view().size(1), p.n = b_.view().size(1);
    p.out = {nullptr, p.n, 1, 0};
    p.a = a_.matrix(0), p.b = b_.matrix(0), p.scales_a = a_.scales_of(0), p.scales_b = b_.scales_of(0);
    p.epilogue.activation = terms_.activation, p.epilogue.has_bias = terms_.bias.has_value();
    p.beta = terms_.residual ? 1.0 : 0.0;
    if (!on_cpu()) return p;
    p.type = DType::bf16;
    if (!a_.lies_in_columns()) p.packed = b_.as_weight(false).value_or(PackedWeight{});
    return p;
  }
  // The operands, terms and result of matrix i of a batch.
  void set_addresses(GemmProblem& p, int64_t i, const Tensor& out) const {
    p.a = a_.matrix(i), p.b = b_.matrix(i), p.scales_a = a_.scales_of(i), p.scales_b = b_.scales_of(i);
    const auto matrix = [&](const Tensor& x) {
      const View v(x);
      auto* const data =
          static_cast<char*>(v.data) + (v.dim == 3 ? i * v.stride(3) * element_size(p.out_type) : 0);
      return Matrix{data, v.stride(2), v.stride(1), 0};
    };
    p.out = matrix(out);
    if (terms_.residual) {
      const Matrix c = matrix(*terms_.residual);
      p.c = {c.data, c.row_stride, c.col_stride, 0};
    }
    if (terms_.bias) {
      const View bias(*terms_.bias);
      p.epilogue.bias = bias.data, p.epilogue.bias_col_stride = bias.stride(1);
    }
  }
  bool on_cpu() const { return a_.view().device_type == aoti_torch_device_type_cpu() && !simulating(); }
  // Whether rows of the CPU that the caller allows take packed weights of e4m3.
  bool takes_weights() const {
    if (!on_cpu()) return false;
    if (choice_.kernel.empty()) return true;
    const PackedWeight weight{.code = Code::e4m3};
    return std::ranges::any_of(kernels_for(Device::cpu), [&](const Kernel& k) {
      return k.op == Op::gemm && k.name == choice_.kernel && k.takes(weight);
    });
  }
  // Into `out`, or a new tensor.
  Tensor multiply_matrix(int64_t i, const Tensor& wide_a, const std::optional<Widened>& wide_b,
                         const std::optional<PackedWeight>& weight, const Tensor* out) const {
    ProductCall call{.a = viewed(wide_a)};
    std::optional<Tensor> matrix;
    const std::array<int64_t, 2> turned{b_.view().size(1), b_.view().size(2)};
    const std::array<int64_t, 2> strides{std::max<int64_t>(turned[1], 1), 1};
    if (weight) {
      call.packed = *weight, call.trans_b = true, call.b = viewed(*codes_of_b_);
      View& b = call.b.view;
      b.dim = 2, b.sizes = turned.data(), b.strides = strides.data(), b.dtype = torch_dtype(type_);
    } else {
      matrix = matrix_of_batch(wide_b->tensor(), i), call.b = viewed(*matrix);
    }
    if (out) call.out = viewed(*out);
    call.choice = choice_, call.out_dtype = product_;
    if (!of_sums_) call.precision = Precision::ieee;
    if (of_sums_) {
      const BlockScales rows = a_.scales_of(i), columns = b_.scales_of(i);
      call.scales = {true,
                     {static_cast<const float*>(rows.data), rows.row_stride},
                     {static_cast<const float*>(columns.data), columns.col_stride}};
    }
    LayerTerms terms = terms_;
    if (terms.residual) terms.residual = matrix_of_batch(*terms.residual, i);
    const AtenTensorHandle made = multiply_layer(call, turned[0], terms);
    return made ? Tensor(made) : *out;
  }

  Fp8Operand a_, b_;
  const Tensor* codes_of_b_ = nullptr;
  bool of_sums_ = false;
  int32_t result_ = 0,
          product_ = 0;  // torch dtypes: of the result, and of the product before it is converted
  DType type_ = DType::bf16;
  Choice choice_;
  LayerTerms terms_;
  std::vector<int64_t> shape_;
};

}  // namespace

AtenTensorHandle multiply_scaled(const ScaledCall& call) {
  const Arguments args(call);
  check_operands(View(args.a), View(args.b));
  return new_handle(Scaled(args).multiply_all().get());
}

void scaled_mm(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  check_operands(View(args.a), View(args.b));
  return_tensor(stack, Scaled(args).multiply_all());
}

}  // namespace fastgemm::torch_ops
