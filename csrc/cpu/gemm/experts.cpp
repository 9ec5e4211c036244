// The passes of a layer of experts (core/experts.h), by the instruction set of this processor.
#include "core/experts.h"

#include "cpu/gemm/element.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/parallel.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

constexpr int64_t kTogether = 512;  // columns whose sums stay in the first-level cache

template <class Body>
void with_floats(const AnyFloats& x, Body&& body) {
  with_element(x.type, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) body(static_cast<T*>(x.data));
  });
}
template <class Acc>
Acc weight_at(const AnyFloats& weights, int64_t i) {
  Acc weight = 1;
  if (weights.data) with_floats(weights, [&](auto* x) { weight = Acc(widen(x[i])); });
  return weight;
}

template <class T>
void combine_token(const CombineRows& g, int64_t token) {
  using Acc = Accumulator<T>;
  for (int64_t begin = 0; begin < g.columns; begin += kTogether) {
    const int64_t count = min(g.columns - begin, kTogether);
    Acc sum[kTogether] = {};
    for (int64_t pair = token * g.chosen; pair < (token + 1) * g.chosen; ++pair) {
      const T* const y = static_cast<const T*>(g.y) + g.places[pair] * g.row_stride + begin;
      const Acc weight = weight_at<Acc>(g.weights, pair);
      for (int64_t i = 0; i < count; ++i) sum[i] += weight * widen(y[i]);
    }
    T* const out = static_cast<T*>(g.out) + token * g.columns + begin;
    for (int64_t i = 0; i < count; ++i) out[i] = round_to<T>(sum[i]);
  }
}

template <class T>
void gradients_of_pair(const CombineGradients& g, int64_t pair) {
  using Acc = Accumulator<T>;
  const CombineRows& f = g.forward;
  const int64_t place = f.places[pair];
  const T* const grad = static_cast<const T*>(g.grad) + pair / f.chosen * g.grad_stride;
  if (f.out) {
    const Acc weight = weight_at<Acc>(f.weights, pair);
    T* const out = static_cast<T*>(f.out) + place * f.columns;
    for (int64_t i = 0; i < f.columns; ++i) out[i] = round_to<T>(weight * widen(grad[i]));
  }
  if (!g.of_weights.data) return;
  constexpr int kSums = 16;  // side by side, so that they fill vectors
  const T* const y = static_cast<const T*>(f.y) + place * f.row_stride;
  Acc sums[kSums] = {};
  for (int64_t i = 0; i < f.columns; i += kSums)
    for (int64_t j = 0; j < min<int64_t>(kSums, f.columns - i); ++j)
      sums[j] += widen(grad[i + j]) * widen(y[i + j]);
  for (int j = 1; j < kSums; ++j) sums[0] += sums[j];
  with_floats(g.of_weights, [&](auto* x) {
    using W = std::remove_pointer_t<decltype(x)>;
    x[pair] = round_to<W>(Accumulator<W>(sums[0]));
  });
}

template <class Body>
void with_float(DType type, Body&& body) {
  with_element(type, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) body.template operator()<T>();
  });
}

// Calls body(i) for all i below `count`, each of which costs `work` multiply-adds, in tasks that are worth a
// thread.
template <class Body>
void in_tasks(Context& ctx, int64_t count, int64_t work, Body&& body) {
  const int64_t most = max<int64_t>(1, min(count, count * max<int64_t>(work, 1) / 16384));
  const int64_t tasks = min<int64_t>(most, 4 * threads_of(ctx));
  parallel(ctx, tasks, [&](int64_t task) {
    for (int64_t i = count * task / tasks; i < count * (task + 1) / tasks; ++i) body(i);
  });
}

}  // namespace

void combine_rows(const CombineRows& g, Context& ctx) {
  with_float(g.type, [&]<class T>() {
    in_tasks(ctx, g.tokens, g.columns * g.chosen, [&](int64_t token) { combine_token<T>(g, token); });
  });
}

void combine_gradients(const CombineGradients& g, Context& ctx) {
  const CombineRows& f = g.forward;
  with_float(f.type, [&]<class T>() {
    in_tasks(ctx, f.tokens * f.chosen, 2 * f.columns, [&](int64_t pair) { gradients_of_pair<T>(g, pair); });
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
