// torch.ops.fastgemm.linear: activation(input @ weight^T + bias) + residual. It is one product if the kernel
// applies the epilogue itself, else a product and a pass (epilogue_pass.h).
#include <algorithm>
#include <array>
#include <vector>

#include "torch/choices.h"
#include "torch/complex.h"
#include "torch/ops.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {
namespace {

struct Arguments {
  Tensor input, weight;
  std::optional<Tensor> bias, residual;
  std::optional<std::string> activation;
  std::optional<int64_t> level;
  std::optional<std::string> kernel, precision;
  std::optional<int32_t> out_dtype;

  // In the order of the schema in library.cpp; braces evaluate from left to right.
  explicit Arguments(StackReader s)
      : input(s.tensor()),
        weight(s.tensor()),
        bias(s.optional_tensor()),
        residual(s.optional_tensor()),
        activation(s.optional_string()),
        level(s.optional_integer()),
        kernel(s.optional_string()),
        precision(s.optional_string()),
        out_dtype(s.optional_dtype()) {}
};

Activation activation_of(const std::optional<std::string>& name) {
  if (!name) return Activation::none;
  constexpr std::string_view names[kActivations] = {"", "relu", "gelu", "gelu_tanh", "silu"};
  for (int i = 1; i < kActivations; ++i)
    if (*name == names[i]) return static_cast<Activation>(i);
  bad_value("unknown activation '" + *name + "'; accepted: 'relu', 'gelu', 'gelu_tanh', 'silu' or None");
}

// Checks that multiply() lacks, or whose messages must name input and weight.
void check(const View& x, const View& w, Activation activation, bool two_terms) {
  if (w.dim != 2) bad_value("weight must have 2 dimensions (N, K), got shape " + shape_text(w.shape()));
  if (x.dim < 2) bad_value("input must have at least 2 dimensions, got shape " + shape_text(x.shape()));
  if (x.size(1) != w.size(1))
    bad_value("input has " + std::to_string(x.size(1)) + " features, but weight " + shape_text(w.shape()) +
              " takes " + std::to_string(w.size(1)) + ": weight is (N, K), as in torch.nn.functional.linear");
  if (x.dtype != w.dtype)
    bad_value("weight has dtype " + dtype_text(w.dtype) + ", but input has " + dtype_text(x.dtype) +
              "; they must be equal");
  if (is_complex(x.dtype)) {
    if (activation != Activation::none || two_terms)
      bad_value("complex input takes no activation, and only one of bias and residual; got " +
                dtype_text(x.dtype));
  } else if (is_integer(arithmetic_type("input", x.dtype))) {
    bad_value("input must be of a floating-point type, got " + dtype_text(x.dtype) +
              "; integers are multiplied by fastgemm.matmul");
  }
}

// bias and residual must have the type of the result. A bias of the operands' type is converted; it is small.
std::optional<Tensor> of_result_type(const std::optional<Tensor>& bias, const View& x, int32_t result) {
  if (!bias) return std::nullopt;
  const View v(*bias);
  if (v.dtype == result) return bias;
  if (v.dtype != x.dtype)
    bad_value("bias has dtype " + dtype_text(v.dtype) + ", expected that of input, " + dtype_text(x.dtype));
  return contiguous_matrices(bias->get(), v, result);
}

void check_terms(const View& x, const View& w, const TensorRef& bias, const TensorRef& residual,
                 int32_t result) {
  if (bias) {
    require_same_device("bias", bias.view, "input", x);
    if (bias.view.dim != 1 || bias.view.size(1) != w.size(2))
      bad_value("bias has shape " + shape_text(bias.view.shape()) + ", expected " +
                shape_text(std::array{w.size(2)}) + ", a number for each row of weight");
  }
  if (!residual) return;
  require_same_device("residual", residual.view, "input", x);
  std::vector<int64_t> shape(x.sizes, x.sizes + x.dim);
  shape.back() = w.size(2);
  if (!std::ranges::equal(residual.view.shape(), shape))
    bad_value("residual has shape " + shape_text(residual.view.shape()) + ", expected that of the result, " +
              shape_text(shape));
  if (residual.view.dtype != result)
    bad_value("residual has dtype " + dtype_text(residual.view.dtype) + ", expected that of the result, " +
              dtype_text(result));
}

}  // namespace

void linear(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  ProductCall call{.a = viewed(args.input), .b = viewed(args.weight)};
  const View &x = call.a.view, &w = call.b.view;
  call.trans_b = true;
  call.choice = choice_of(args.level, args.kernel);
  call.precision = precision_of(args.precision);
  call.out_dtype = args.out_dtype;
  const Activation activation = activation_of(args.activation);
  const bool two_terms = args.bias && args.residual;
  require_same_device("weight", w, "input", x);
  check(x, w, activation, two_terms);
  const int32_t result = args.out_dtype.value_or(x.dtype);
  const std::optional<Tensor> bias = of_result_type(args.bias, x, result);
  TensorRef of_bias, of_residual;
  if (bias) of_bias = viewed(*bias);
  if (args.residual) of_residual = viewed(*args.residual);
  check_terms(x, w, of_bias, of_residual, result);
  if (activation == Activation::none && !two_terms) {  // a product plus one matrix
    call.c = bias ? of_bias : of_residual;
  } else {
    call.activation = activation, call.bias = of_bias, call.c = of_residual;
  }
  stack[0] = torch::stable::detail::from(multiply(call));
}

}  // namespace fastgemm::torch_ops
