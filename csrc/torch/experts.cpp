// torch.ops.fastgemm._route_tokens, _combine_rows and _combine_gradients: what a layer of experts computes
// around its grouped products (core/experts.h).
#include "core/experts.h"

#include <array>

#include "core/passes.h"
#include "torch/context.h"
#include "torch/ops.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

AnyFloats floats_of(const char* name, const View& v) {
  const DType type = arithmetic_type(name, v.dtype);
  if (is_integer(type)) bad_value(std::string(name) + " must be of a floating-point type");
  return {v.data, type};
}

// The operands of a sum: rows that are contiguous each, where each pair went, and perhaps weights.
struct Rows {
  Tensor y, places;
  std::optional<Tensor> weights;
  CombineRows problem;

  Rows(const Tensor& given, const Tensor& given_places, const std::optional<Tensor>& given_weights)
      : y(with_unit_stride(given)), places(contiguous_matrices(given_places.get(), View(given_places))) {
    const View rows(y), p(places);
    if (rows.dim != 2 || p.dim != 2 || p.dtype != kInt32 || p.size(1) * p.size(2) != rows.size(2))
      bad_value("places must be int32 with 2 dimensions and a place for each row, got " +
                dtype_text(p.dtype) + " of shape " + shape_text(p.shape()) + " for y of shape " +
                shape_text(rows.shape()));
    require_same_device("places", p, "y", rows);
    problem.type = floats_of("y", rows).type;
    problem.y = rows.data, problem.row_stride = rows.stride(2), problem.columns = rows.size(1);
    problem.places = static_cast<const int32_t*>(p.data);
    problem.tokens = p.size(2), problem.chosen = int(p.size(1));
    if (!given_weights) return;
    weights = contiguous_matrices(given_weights->get(), View(*given_weights));
    const View w(*weights);
    require_same_device("weights", w, "y", rows);
    if (w.dim != 2 || w.size(2) != p.size(2) || w.size(1) != p.size(1))
      bad_value("weights has shape " + shape_text(w.shape()) + ", expected " + shape_text(p.shape()));
    problem.weights = floats_of("weights", w);
  }
  static Tensor with_unit_stride(const Tensor& x) {
    const View v(x);
    return v.dim == 2 && v.size(1) > 1 && v.stride(1) != 1 ? contiguous_matrices(x.get(), v) : x;
  }
};

template <auto pass, class Problem>
void run(const Problem& problem, const View& like) {
  with_context(like,
               [&](Context& context, Device device, int) { (passes_of(device).*pass)(problem, context); });
}

}  // namespace

void route_tokens(StableIValue* stack, uint64_t, uint64_t) {
  StackReader s(stack);
  const Tensor ids = s.tensor();
  const int64_t experts = s.integer();
  const View v(ids);
  if (v.dim != 2 || (v.dtype != kInt32 && v.dtype != kInt64))
    bad_value("ids must be int32 or int64 with 2 dimensions, got " + dtype_text(v.dtype) + " of shape " +
              shape_text(v.shape()));
  RouteTokens g;
  g.ids = v.data, g.wide = v.dtype == kInt64, g.token_stride = v.stride(2), g.chosen_stride = v.stride(1);
  g.tokens = v.size(2), g.chosen = int(v.size(1)), g.experts = int(experts);
  if (experts < 0 || experts > kMostExperts || v.size(1) > kMostExperts || g.pairs() > INT32_MAX)
    bad_value("there may be up to " + std::to_string(kMostExperts) + " experts, and 2^31 - 1 pairs");
  const std::array pairs{g.pairs()};
  const Tensor order = empty_contiguous(pairs, kInt32, v), rows = empty_contiguous(pairs, kInt32, v);
  const Tensor ends = empty_contiguous(std::array{experts}, kInt32, v);
  const Tensor places = empty_contiguous(v.shape(), kInt32, v);
  const auto data = [](const Tensor& t) { return static_cast<int32_t*>(View(t).data); };
  g.order = data(order), g.rows = data(rows), g.ends = data(ends), g.places = data(places);
  run<&Passes::route_tokens>(g, v);
  for (int i = 0; const Tensor& t : {order, rows, ends, places}) stack[i++] = torch::stable::detail::from(t);
}

void combine_rows(StableIValue* stack, uint64_t, uint64_t) {
  StackReader s(stack);
  const Tensor y = s.tensor(), places = s.tensor();
  const std::optional<Tensor> weights = s.optional_tensor();
  Rows rows(y, places, weights);
  CombineRows& g = rows.problem;
  const Tensor out = empty_contiguous(std::array{g.tokens, g.columns}, View(y).dtype, View(y));
  g.out = View(out).data;
  run<&Passes::combine_rows>(g, View(y));
  return_tensor(stack, out);
}

void combine_gradients(StableIValue* stack, uint64_t, uint64_t) {
  StackReader s(stack);
  const Tensor given = s.tensor(), y = s.tensor(), places = s.tensor(), weights = s.tensor();
  const bool of_rows = s.flag(), of_weights = s.flag();
  Rows rows(y, places, weights);
  const Tensor grad = Rows::with_unit_stride(given);
  const View result(grad), v(y), w(weights);
  CombineGradients g{.forward = rows.problem, .grad = result.data};
  if (result.dim != 2 || result.size(2) != g.forward.tokens || result.size(1) != g.forward.columns ||
      result.dtype != v.dtype)
    bad_value("grad has shape " + shape_text(result.shape()) + " and dtype " + dtype_text(result.dtype) +
              ", expected those of the sums");
  require_same_device("grad", result, "y", v);
  g.grad_stride = result.stride(2);
  const std::array<int64_t, 2> none{0, 0};
  const Tensor grad_y = empty_contiguous(of_rows ? v.shape() : none, v.dtype, v);
  const Tensor grad_weights = empty_contiguous(of_weights ? w.shape() : none, w.dtype, v);
  if (of_rows) g.forward.out = View(grad_y).data;
  if (of_weights) g.of_weights = {View(grad_weights).data, g.forward.weights.type};
  run<&Passes::combine_gradients>(g, v);
  stack[0] = torch::stable::detail::from(grad_y);
  stack[1] = torch::stable::detail::from(grad_weights);
}

}  // namespace fastgemm::torch_ops
