// From a GemmProblem to engines: batches, threads, split-K.
#pragma once

#include <climits>

#include "cpu/gemm/engine.h"

namespace fastgemm::FASTGEMM_ISA {

template <class Traits, class Out>
Product<Traits, Out> product_of(const GemmProblem& p, int64_t batch) {
  using Element = typename Traits::Element;
  using Acc = typename Traits::Acc;
  Product<Traits, Out> q;
  q.m = p.m, q.n = p.n, q.k = p.k;
  q.a = static_cast<const Element*>(p.a.data) + batch * p.a.batch_stride;
  q.a_rs = p.a.row_stride, q.a_cs = p.a.col_stride;
  q.b = static_cast<const Element*>(p.b.data) + batch * p.b.batch_stride;
  q.b_rs = p.b.row_stride, q.b_cs = p.b.col_stride;
  q.o = output_of<Out>(p, batch);
  q.alpha = scalar_of<Acc>(p.alpha), q.beta = scalar_of<Acc>(p.beta);
  return q;
}

// Few tiles and a long k: each thread takes a part of k and sums into its own (m, n) buffer; the buffers
// are added in order, so that the result does not depend on timing.
template <class Traits, class Out>
void run_split_k(const Product<Traits, Out>& p, Context& ctx, int splits) {
  using Acc = typename Traits::Acc;
  const int64_t longest = round_up(ceil_div(p.k, splits) + Traits::kGroup, Traits::kGroup);
  const Engine<Traits, Acc> engine(p.m, p.n, longest, 1);
  const int64_t sums = p.m * p.n, sums_bytes = round_up(sums * sizeof(Acc), 64);
  const int64_t scratch_bytes = round_up(engine.scratch_bytes(), 64);
  char* base = static_cast<char*>(ctx.allocate(splits * (sums_bytes + scratch_bytes)));
  Acc* partial = reinterpret_cast<Acc*>(base);
  parallel(ctx, splits, [&](int64_t s) {
    const Range k = part(p.k, Traits::kGroup, splits, s);
    Product<Traits, Acc> q{p.m,
                           p.n,
                           k.size(),
                           p.a + k.begin * p.a_cs,
                           p.a_rs,
                           p.a_cs,
                           p.b + k.begin * p.b_rs,
                           p.b_rs,
                           p.b_cs,
                           {nullptr, 0, 0, partial + s * sums_bytes / sizeof(Acc), p.n},
                           Acc{1},
                           Acc{0}};
    engine.run(q, nullptr, base + splits * sums_bytes + s * scratch_bytes);
  });
  for (int s = 1; s < splits; ++s)
    for (int64_t i = 0; i < sums; ++i) partial[i] += partial[s * sums_bytes / sizeof(Acc) + i];
  store_tile(partial, p.n, static_cast<int>(p.m), static_cast<int>(p.n), p.alpha, p.beta, p.o);
}

template <class Traits, class Out>
void run_typed(const GemmProblem& p, Context& ctx, int max_threads) {
  constexpr int64_t kWorthAFork =
      int64_t{96} * 96 * 96;  // multiply-adds; below, a fork costs more than it saves
  const int64_t work = p.m * p.n * p.k;
  const int threads = p.batch * work < kWorthAFork ? 1 : min(max_threads, ctx.threads());
  if (p.batch > 1 && threads > 1 && (p.batch >= 2 * threads || work < kWorthAFork)) {
    const Engine<Traits, Out> engine(p.m, p.n, p.k, 1);
    const int64_t scratch_bytes = round_up(engine.scratch_bytes(), 64);
    char* scratch = static_cast<char*>(ctx.allocate(threads * scratch_bytes));
    parallel(ctx, threads, [&](int64_t task) {
      const Range mine = part(p.batch, 1, threads, task);
      for (int64_t i = mine.begin; i < mine.end; ++i)
        engine.run(product_of<Traits, Out>(p, i), nullptr, scratch + task * scratch_bytes);
    });
    return;
  }
  const int64_t tiles = ceil_div(p.m, Traits::kMR) * ceil_div(p.n, Traits::kNR);
  if (threads > 1 && tiles < 8 * threads && p.k >= 4 * Traits::kKC && p.m * p.n <= 128 * 128) {
    for (int64_t i = 0; i < p.batch; ++i) run_split_k(product_of<Traits, Out>(p, i), ctx, threads);
    return;
  }
  const Engine<Traits, Out> engine(p.m, p.n, p.k, threads);
  void* scratch = ctx.allocate(engine.scratch_bytes());
  for (int64_t i = 0; i < p.batch; ++i) engine.run(product_of<Traits, Out>(p, i), &ctx, scratch);
}

// The entry point of every kernel on the engine.
template <class Traits>
void run_engine(const GemmProblem& p, Context& ctx, int max_threads = INT_MAX) {
  using Acc = typename Traits::Acc;
  using Element = typename Traits::Element;
  constexpr bool half = std::is_same_v<Acc, float> && !std::is_same_v<Element, float>;
  if constexpr (half) {
    if (p.out_type == p.type) return run_typed<Traits, Element>(p, ctx, max_threads);
  }
  run_typed<Traits, Acc>(p, ctx, max_threads);
}

}  // namespace fastgemm::FASTGEMM_ISA
