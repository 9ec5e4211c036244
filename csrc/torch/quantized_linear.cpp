// torch.ops.fastgemm.quantized_linear: activation(input @ weight^T + bias) + residual, where weight is given
// by codes of 4 or 8 bits and their scales (core/packed_weight.h).
#include <algorithm>
#include <array>

#include "torch/choices.h"
#include "torch/layer.h"
#include "torch/ops.h"
#include "torch/packed_arguments.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

struct Arguments {
  Tensor input;
  PackedArguments weight;
  std::optional<Tensor> bias, residual;
  std::optional<std::string> activation;
  std::optional<int64_t> level;
  std::optional<std::string> kernel;
  bool invariant;
  std::optional<int32_t> out_dtype;

  // In the order of the schema in library.cpp.
  explicit Arguments(StackReader s)
      : input(s.tensor()),
        weight(PackedArguments::tensors(s)),
        bias(s.optional_tensor()),
        residual(s.optional_tensor()) {
    weight.n = s.integer();
    weight.read_format(s);
    activation = s.optional_string();
    level = s.optional_integer(), kernel = s.optional_string();
    invariant = s.flag();
    out_dtype = s.optional_dtype();
  }
};

void check_input(const View& x) {
  if (x.dim != 2) bad_value("input must have 2 dimensions, got shape " + shape_text(x.shape()));
  if (x.dtype != kFloat && x.dtype != kBFloat16 && x.dtype != kHalf)
    bad_value("input has dtype " + dtype_text(x.dtype) +
              "; packed weights multiply torch.float32, torch.bfloat16 and torch.float16");
}

}  // namespace

void quantized_linear(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  ProductCall call{.a = viewed(args.input), .b = viewed(args.weight.codes)};
  const View& x = call.a.view;
  check_input(x);
  const PackedOperands packed = packed_operands(args.weight, x.size(1), x, "input");
  call.packed = packed.weight;
  // The product sees the codes as a matrix (n, k) of the type of a.
  const std::array<int64_t, 2> shape{args.weight.n, x.size(1)}, strides{std::max<int64_t>(x.size(1), 1), 1};
  View& b = call.b.view;
  b.data = const_cast<void*>(packed.codes);
  b.dim = 2, b.sizes = shape.data(), b.strides = strides.data(), b.dtype = x.dtype;
  call.trans_b = true;
  call.choice = choice_of(args.level, args.kernel);
  if (args.invariant) {
    if (!is_free(call.choice))
      bad_value("invariant=True chooses the kernel; it takes no level and no kernel");
    call.choice = {0, "invariant"};
  }
  call.out_dtype = args.out_dtype;
  const LayerTerms terms{args.bias, args.residual, activation_of(args.activation)};
  stack[0] = torch::stable::detail::from(multiply_layer(call, args.weight.n, terms));
}

}  // namespace fastgemm::torch_ops
