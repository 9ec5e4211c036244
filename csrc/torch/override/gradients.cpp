// The gradients of a product. They are computed by the op itself, so that they can be differentiated again.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/AutogradState.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>

#include "torch/override/gemm_op.h"

namespace fastgemm::override {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The arguments of a product besides its operands. It owns its strings, because the backward pass comes
// later.
struct Options {
  double alpha = 1.0;
  std::optional<double> beta;
  bool trans_a = false, trans_b = false;
  std::optional<int64_t> level;
  std::optional<std::string> kernel, precision;
  std::optional<at::ScalarType> out_dtype;
  bool symmetric = false;  // holds only for the forward product, like out_dtype

  bool by_rows = false;   // a is (..., K), with any number of dimensions
  bool relu = false;      // follows the product
  bool residual = false;  // is added last

  at::ScalarType narrow = at::kFloat;  // of a and b
  std::vector<int64_t> a_shape, b_shape;
  std::optional<std::vector<int64_t>> c_shape;  // none: there is no c

  c10::IValue packed() const;
  static Options of(const c10::IValue&);
};

// Packs the options into a tuple of numbers and strings, which compiled autograd treats as constants.
// out_dtype is the gradient's type.
c10::IValue Options::packed() const {
  const int64_t flags =
      trans_a | trans_b << 1 | by_rows << 2 | c_shape.has_value() << 3 | relu << 4 | residual << 5;
  std::vector<c10::IValue> all{alpha,
                               beta,
                               flags,
                               level,
                               kernel,
                               precision,
                               int64_t(narrow),
                               int64_t(a_shape.size()),
                               int64_t(b_shape.size())};
  all.insert(all.end(), a_shape.begin(), a_shape.end());
  all.insert(all.end(), b_shape.begin(), b_shape.end());
  if (c_shape) all.insert(all.end(), c_shape->begin(), c_shape->end());
  return c10::ivalue::Tuple::create(std::move(all));
}

Options Options::of(const c10::IValue& packed) {
  const at::ArrayRef<c10::IValue> all = packed.toTupleRef().elements().asArrayRef();
  Options o;
  o.alpha = all[0].toDouble(), o.beta = all[1].toOptional<double>();
  const int64_t flags = all[2].toInt();
  o.trans_a = flags & 1, o.trans_b = flags >> 1 & 1, o.by_rows = flags >> 2 & 1;
  o.relu = flags >> 4 & 1, o.residual = flags >> 5 & 1;
  o.level = all[3].toOptional<int64_t>();
  o.kernel = all[4].toOptional<std::string>(), o.precision = all[5].toOptional<std::string>();
  o.narrow = at::ScalarType(all[6].toInt());
  size_t next = 9;
  for (int64_t n = all[7].toInt(); n > 0; --n) o.a_shape.push_back(all[next++].toInt());
  for (int64_t n = all[8].toInt(); n > 0; --n) o.b_shape.push_back(all[next++].toInt());
  if (flags >> 3 & 1)
    for (o.c_shape.emplace(); next < all.size();) o.c_shape->push_back(all[next++].toInt());
  return o;
}

OptionalText text(const std::optional<std::string>& owned) {
  return owned ? OptionalText(*owned) : std::nullopt;
}

// A product of the backward pass. It uses the level, kernel and precision of the forward product. It uses
// another kernel in two cases: the operands are wider than in the forward product (the kernels of
// invariant=True take both types), or the kernel computes only symmetric results, which a gradient is not.
at::Tensor product(const Options& o, const at::Tensor& a, const at::Tensor& b, bool trans_a, bool trans_b) {
  const bool takes_any = o.kernel == "invariant" || o.kernel == "naive";
  const bool same = (a.scalar_type() == o.narrow || takes_any) && o.kernel != "symmetric";
  return bare_gemm().call(a, b, std::nullopt, o.alpha, std::nullopt, trans_a, trans_b, o.level,
                          same ? text(o.kernel) : std::nullopt, text(o.precision), std::nullopt, false);
}

at::Tensor reduced(const at::Tensor& gradient, at::IntArrayRef shape, at::ScalarType type) {
  const c10::SymIntArrayRef wanted = c10::fromIntArrayRefSlow(shape);
  if (gradient.sym_sizes() == wanted) return gradient.to(type);
  const bool sums = gradient.sym_numel() != c10::multiply_integers(shape);
  return (sums ? at::sum_to(gradient, wanted) : gradient.view_symint(wanted)).to(type);
}

c10::SymInt rows_in(const at::Tensor& t) {
  c10::SymInt rows = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) rows *= t.sym_size(d);
  return rows;
}

// Whether the gradients of a batch of products are computed as one product of all rows: if b is one matrix.
// Each element of its gradient is then one sum, rounded once, instead of a sum of rounded products.
bool is_one_product(const Options& o, const at::Tensor& grad) {
  const auto one = [](int64_t size) { return size == 1; };
  return o.by_rows ||
         (grad.dim() > 2 && !o.trans_a && std::all_of(o.b_shape.begin(), o.b_shape.end() - 2, one));
}

at::Tensor gradient_of_a(const Options& o, const at::Tensor& grad, const at::Tensor& b) {
  const at::Tensor g =
      o.trans_a ? product(o, b, grad, o.trans_b, true) : product(o, grad, b, false, !o.trans_b);
  return reduced(g, o.a_shape, o.narrow);
}
at::Tensor gradient_of_b(const Options& o, const at::Tensor& grad, const at::Tensor& a) {
  const at::Tensor g =
      o.trans_b ? product(o, grad, a, true, o.trans_a) : product(o, a, grad, !o.trans_a, false);
  return reduced(g, o.b_shape, o.narrow);
}
// With beta = 0 c is not read, so its gradient is 0, even if `grad` is infinite.
at::Tensor gradient_of_c(const Options& o, const at::Tensor& grad) {
  const at::Tensor scaled = !o.beta || *o.beta == 1.0 ? grad
                            : *o.beta == 0.0          ? at::zeros_like(grad)
                                                      : grad.mul(*o.beta);
  return at::sum_to(scaled, c10::fromIntArrayRefSlow(*o.c_shape));
}

at::Tensor forward_product(const Options& o, const at::Tensor& a, const at::Tensor& b,
                           const OptionalTensor& c) {
  return bare_gemm().call(a, b, c, o.alpha, o.beta, o.trans_a, o.trans_b, o.level, text(o.kernel),
                          text(o.precision), o.out_dtype, o.symmetric);
}

// As in torch, the result is not a view.
at::Tensor with_batch(at::Tensor rows, const at::Tensor& input, const at::Tensor& weight, bool transposed) {
  return input.dim() == 2 ? rows : at::_unsafe_view_symint(rows, layer_shape(input, weight, transposed));
}

at::Tensor forward_rows(const Options& o, const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c,
                        const OptionalTensor& residual = {}) {
  if (!o.relu && !residual) return with_batch(forward_product(o, rows_of(a), b, c), a, b, o.trans_b);
  return layer_of_rows({.input = a,
                        .weight = b,
                        .bias = c,
                        .residual = residual,
                        .activation = o.relu ? OptionalText("relu") : std::nullopt,
                        .level = o.level,
                        .kernel = text(o.kernel),
                        .precision = text(o.precision)});
}

class GemmFunction : public torch::autograd::Function<GemmFunction> {
 public:
  // Compiled autograd traces the backward pass, where sizes may be symbols.
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b,
                            const OptionalTensor& c, const OptionalTensor& residual, Options& o) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::AutoGradMode as_outside(true);  // for a signal handler that runs before this returns
    o.narrow = a.scalar_type();
    o.a_shape = a.sizes().vec(), o.b_shape = b.sizes().vec();
    if (c) o.c_shape = c->sizes().vec();
    o.residual = residual.has_value();
    // Like torch, saves only what a gradient needs: not the input of a frozen layer, for example.
    ctx->saved_data["options"] = o.packed();
    at::Tensor result = o.by_rows ? forward_rows(o, a, b, c, residual) : forward_product(o, a, b, c);
    variable_list saved{b.requires_grad() ? a : at::Tensor(), a.requires_grad() ? b : at::Tensor()};
    if (o.relu) saved.push_back(result);
    ctx->save_for_backward(std::move(saved));
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list found(5);  // of a, b, c, the residual and the options
    if (!grads[0].defined()) return found;
    const Options o = Options::of(ctx->saved_data["options"]);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor inner = o.relu ? at::threshold_backward(grads[0], saved[2], 0) : grads[0];
    const bool by_rows = is_one_product(o, inner);
    const at::Tensor grad = by_rows ? rows_of(inner) : inner;
    // The gradient of a float32 result is float32, too. The operands are widened, so that no intermediate
    // value overflows. For complex operands, torch's convention multiplies by the conjugate of the other
    // operand.
    const auto widened = [&](const at::Tensor& x) {
      return (grad.scalar_type() == o.narrow ? x : x.to(grad.scalar_type())).conj();
    };
    if (ctx->needs_input_grad(0)) found[0] = gradient_of_a(o, grad, widened(saved[1]));
    if (ctx->needs_input_grad(1))
      found[1] = gradient_of_b(o, grad, widened(by_rows ? rows_of(saved[0]) : saved[0]));
    if (o.c_shape && ctx->needs_input_grad(2)) found[2] = gradient_of_c(o, o.by_rows ? grad : inner);
    if (o.residual && ctx->needs_input_grad(o.c_shape ? 3 : 2)) found[3] = grads[0];
    return found;
  }
};

at::Tensor recorded_rows(Options& o, const at::Tensor& input, const at::Tensor& weight,
                         const OptionalTensor& bias, const OptionalTensor& residual) {
  // If the rows must be copied, autograd records the copy and keeps it, as in torch.
  const std::array<c10::SymInt, 2> rows{rows_in(input), input.sym_size(-1)};
  const bool as_they_lie = input.dim() == 2 || input.is_contiguous() ||
                           at::detail::computeStride(input.sym_sizes(), input.sym_strides(), rows);
  return GemmFunction::apply(as_they_lie ? input : input.contiguous(), weight, bias, residual, o);
}

}  // namespace

bool needs_gradient(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c) {
  return at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad() || (c && c->requires_grad()));
}

bool in_transform() {
  using c10::DispatchKey;
  return c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerBackMode);
}

bool is_dual(const at::Tensor& t) {
  return t.defined() && c10::AutogradState::get_tls_state().get_fw_grad_mode() && t._fw_grad(0).defined();
}

at::Tensor rows_of(const at::Tensor& t) {
  if (t.dim() == 2) return t;
  const std::array<c10::SymInt, 2> shape{rows_in(t), t.sym_size(-1)};
  return t.is_contiguous() ? t.view_symint(shape) : t.reshape_symint(shape);
}

std::vector<c10::SymInt> layer_shape(const at::Tensor& input, const at::Tensor& weight, bool transposed) {
  auto shape = input.sym_sizes().vec();
  shape.back() = weight.sym_size(transposed ? 0 : 1);
  return shape;
}

// An autograd function in C++ cannot propagate tangents of forward mode, raises under an active transform of
// torch.func, and cannot take traced tensors, whose sizes may be symbols.
bool needs_python(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c) {
  const auto in_python = [](const at::Tensor& t) { return t.key_set().has(c10::DispatchKey::Python); };
  if (in_python(a) || in_python(b) || (c && in_python(*c))) return needs_gradient(a, b, c);
  if (in_transform()) return needs_gradient(a, b, c);
  return is_dual(a) || is_dual(b) || (c && is_dual(*c));
}

at::Tensor differentiable_gemm(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& c,
                               double alpha, std::optional<double> beta, bool trans_a, bool trans_b,
                               std::optional<int64_t> level, OptionalText kernel, OptionalText precision,
                               std::optional<at::ScalarType> out_dtype, bool symmetric) {
  Options o{.alpha = alpha, .beta = beta, .trans_a = trans_a, .trans_b = trans_b, .level = level};
  o.out_dtype = out_dtype, o.symmetric = symmetric;
  if (kernel) o.kernel = *kernel;
  if (precision) o.precision = *precision;
  return GemmFunction::apply(a, b, c, OptionalTensor(), o);
}

at::Tensor linear_rows(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                       bool transposed, std::optional<int64_t> level, OptionalText kernel,
                       OptionalText precision) {
  Options o{.trans_b = transposed, .level = level, .by_rows = true};
  if (kernel) o.kernel = *kernel;
  if (precision) o.precision = *precision;
  const bool by_function = needs_gradient(input, weight, bias) && !needs_python(input, weight, bias);
  return by_function ? recorded_rows(o, input, weight, bias, {}) : forward_rows(o, input, weight, bias);
}

at::Tensor layer_of_rows(const FusedLayer& l) {
  const OptionalTensor residual = l.residual ? OptionalTensor(rows_of(*l.residual)) : std::nullopt;
  const at::Tensor rows = bare_fused().call(rows_of(l.input), l.weight, l.bias, residual, l.activation,
                                            l.level, l.kernel, l.precision, l.out_dtype);
  return with_batch(rows, l.input, l.weight, true);
}

at::Tensor differentiable_layer(const FusedLayer& l) {
  Options o{.trans_b = true, .level = l.level, .by_rows = true, .relu = l.activation.has_value()};
  if (l.kernel) o.kernel = *l.kernel;
  if (l.precision) o.precision = *l.precision;
  return recorded_rows(o, l.input, l.weight, l.bias, l.residual);
}

}  // namespace fastgemm::override
