// torch.ops.fastgemm.linear: activation(input @ weight^T + bias) + residual. It is one product if the kernel
// applies the epilogue itself, else a product and a pass (epilogue_pass.h).
#include "torch/choices.h"
#include "torch/complex.h"
#include "torch/layer.h"
#include "torch/ops.h"
#include "torch/scalar_types.h"

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

// Checks that multiply() lacks, or whose messages must name input and weight.
void check(const View& x, const View& w, Activation activation, std::optional<int32_t> out_dtype) {
  if (w.dim != 2) bad_value("weight must have 2 dimensions (N, K), got shape " + shape_text(w.shape()));
  if (x.dim < 2) bad_value("input must have at least 2 dimensions, got shape " + shape_text(x.shape()));
  if (x.size(1) != w.size(1))
    bad_value("input has " + std::to_string(x.size(1)) + " features, but weight " + shape_text(w.shape()) +
              " takes " + std::to_string(w.size(1)) + ": weight is (N, K), as in torch.nn.functional.linear");
  if (x.dtype != w.dtype)
    bad_value("weight has dtype " + dtype_text(w.dtype) + ", but input has " + dtype_text(x.dtype) +
              "; they must be equal");
  if (is_complex(x.dtype)) {
    if (activation != Activation::none)
      bad_value("complex input takes no activation; got " + dtype_text(x.dtype));
    require_complex(x, w, out_dtype);
  } else if (x.dtype != kDouble && x.dtype != kFloat && x.dtype != kHalf && x.dtype != kBFloat16) {
    bad_value("input has dtype " + dtype_text(x.dtype) +
              "; accepted are float64, float32, float16, bfloat16, complex128, complex64 and complex32 "
              "(fastgemm.matmul also multiplies integers)");
  }
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
  const LayerTerms terms{args.bias, args.residual, activation_of(args.activation)};
  require_same_device("weight", w, "input", x);
  check(x, w, terms.activation, args.out_dtype);
  stack[0] = torch::stable::detail::from(multiply_layer(call, w.size(2), terms));
}

}  // namespace fastgemm::torch_ops
