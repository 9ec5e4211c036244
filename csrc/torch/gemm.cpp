// torch.ops.fastgemm.gemm, matmul and the out= variant: read the stack of a boxed call and multiply.
#include <utility>

#include "torch/choices.h"
#include "torch/ops.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {
namespace {

struct Arguments {
  Tensor a, b;
  std::optional<Tensor> c;
  double alpha = 1.0;
  std::optional<double> beta;
  bool trans_a = false, trans_b = false;
  std::optional<int64_t> level;
  std::optional<std::string> kernel, precision;
  std::optional<int32_t> out_dtype;
  bool symmetric = false;

  // In the order of the schema in library.cpp; braces evaluate from left to right.
  explicit Arguments(StackReader s)
      : a(s.tensor()),
        b(s.tensor()),
        c(s.optional_tensor()),
        alpha(s.number()),
        beta(s.optional_number()),
        trans_a(s.flag()),
        trans_b(s.flag()),
        level(s.optional_integer()),
        kernel(s.optional_string()),
        precision(s.optional_string()),
        out_dtype(s.optional_dtype()),
        symmetric(s.flag()) {}

  // The call refers to these arguments, so it must not outlive them.
  ProductCall call() const {
    ProductCall p{.a = viewed(a), .b = viewed(b)};
    if (c) p.c = viewed(*c);
    p.alpha = alpha, p.beta = beta;
    p.trans_a = trans_a, p.trans_b = trans_b;
    p.choice = choice_of(level, kernel);
    p.precision = precision_of(precision);
    p.out_dtype = out_dtype;
    p.symmetry.known = p.symmetry.asked = symmetric;
    return p;
  }
};

// Returns a new tensor and its ownership to the caller.
void return_new(StableIValue* stack, AtenTensorHandle tensor) {
  stack[0] = torch::stable::detail::from(tensor);
}

}  // namespace

void gemm(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  return_new(stack, multiply(args.call()));
}

void matmul(StableIValue* stack, uint64_t, uint64_t) {
  StackReader s(stack);
  const Tensor a = s.tensor(), b = s.tensor();
  return_new(stack, multiply({.a = viewed(a), .b = viewed(b)}));
}

void gemm_out(StableIValue* stack, uint64_t inputs, uint64_t) {
  const Tensor out = StackReader(stack + inputs - 1).tensor();
  const Arguments args{StackReader(stack)};
  ProductCall call = args.call();
  call.out = viewed(out);
  multiply(call);
}

}  // namespace fastgemm::torch_ops
