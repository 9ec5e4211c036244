// Chooses the route of a GemmProblem: few rows, in place, panels of k, columns, split-K or the five loops.
// Also distributes batches and threads.
#pragma once

#include "cpu/gemm/by_columns.h"
#include "cpu/gemm/engine.h"
#include "cpu/gemm/few_rows.h"
#include "cpu/gemm/in_place.h"
#include "cpu/gemm/panel_dot.h"
#include "cpu/gemm/tiny.h"

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
  q.alpha = scalar_of<Scale<Acc>>(p.alpha), q.beta = scalar_of<Scale<Acc>>(p.beta);
  q.conjugates_a = p.conjugates_a, q.conjugates_b = p.conjugates_b;
  q.packed = p.packed.is_given() ? &p.packed : nullptr;
  q.row_scales = p.scales_a, q.column_scales = p.scales_b;
  return q;
}

// The class that runs the five loops; a kernel may have its own.
template <class Traits, class Out>
struct EngineOf {
  using Type = Engine<Traits, Out>;
};

// Split-K, for few tiles and a long k. Each thread computes a part of k in its own (m, n) buffer. The buffers
// are added in order, so that the result does not depend on timing. Products of one shape that are computed
// one after another share the memory.
template <class Traits, class Out>
class SplitK {
  using Acc = typename Traits::Acc;

 public:
  SplitK(int64_t m, int64_t n, int64_t k, int splits)
      : engine_(m, n, round_up(ceil_div(k, splits) + Traits::kGroup, Traits::kGroup), 1),
        splits_(splits),
        sums_bytes_(round_up(m * n * int64_t(sizeof(Acc)), 64)),
        scratch_bytes_(round_up(engine_.scratch_bytes(), 64)) {}

  int64_t bytes() const { return splits_ * (sums_bytes_ + scratch_bytes_); }

  void run(const Product<Traits, Out>& p, Context& ctx, char* base) const {
    Acc* partial = reinterpret_cast<Acc*>(base);
    parallel(ctx, splits_, [&](int64_t s) {
      const Range k = part(p.k, Traits::kGroup, splits_, s);
      Product<Traits, Acc> q{p.m,
                             p.n,
                             k.size(),
                             p.a + k.begin * p.a_cs,
                             p.a_rs,
                             p.a_cs,
                             p.b + k.begin * p.b_rs,
                             p.b_rs,
                             p.b_cs,
                             {nullptr, 0, 0, partial + s * sums_bytes_ / int64_t(sizeof(Acc)), p.n},
                             Scale<Acc>{1},
                             Scale<Acc>{0},
                             p.conjugates_a,
                             p.conjugates_b};
      engine_.run(q, ctx, base + splits_ * sums_bytes_ + s * scratch_bytes_);
    });
    const int64_t sums = p.m * p.n, step = sums_bytes_ / int64_t(sizeof(Acc));
    for (int s = 1; s < splits_; ++s)
      for (int64_t i = 0; i < sums; ++i) partial[i] += partial[s * step + i];
    store_tile(partial, p.n, static_cast<int>(p.m), static_cast<int>(p.n), p.alpha, p.beta, p.o);
  }

 private:
  typename EngineOf<Traits, Acc>::Type engine_;
  int splits_;
  int64_t sums_bytes_, scratch_bytes_;
};

// Computes all products of a batch by a Runner (Engine, ByColumns, InPlace or PanelDot). If there are many or
// small ones, each is computed by one thread. Otherwise all threads compute one product after another.
template <class Runner, class Traits, class Out>
void run_batch(const GemmProblem& p, Context& ctx, int threads) {
  if (p.batch > 1 && threads > 1 && (p.batch >= 2 * threads || p.m * p.n * p.k < kWorthAFork)) {
    const Runner runner(p.m, p.n, p.k, 1);
    const int64_t scratch_bytes = round_up(runner.scratch_bytes(), 64);
    char* scratch = static_cast<char*>(ctx.allocate(threads * scratch_bytes));
    parallel(ctx, threads, [&](int64_t task) {
      const Range mine = part(p.batch, 1, threads, task);
      Pace pace;
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        runner.run(product_of<Traits, Out>(p, i), ctx, scratch + task * scratch_bytes);
        if (pace.due(p.m * p.n * p.k) && stopped(ctx)) return;
      }
    });
    return;
  }
  const Runner runner(p.m, p.n, p.k, threads);
  void* scratch = ctx.allocate(runner.scratch_bytes());
  Pace pace;
  for (int64_t i = 0; i < p.batch; ++i) {
    runner.run(product_of<Traits, Out>(p, i), ctx, scratch);
    if (pace.due(p.m * p.n * p.k) && stopped(ctx)) return;
  }
}

inline int threads_for(const GemmProblem& p, const Context& ctx) {
  return p.batch * p.m * p.n * p.k < kWorthAFork ? 1 : threads_of(ctx);
}

template <class Traits, class Out>
void run_routes(const GemmProblem& p, Context& ctx) {
  const int threads = threads_for(p, ctx);
  // The five loops divide k into blocks that depend only on k. The choice among the other routes depends on
  // m. These routes also read B in place, but packed weights become numbers only in packed panels.
  if (p.invariant || p.packed.is_given())
    return run_batch<typename EngineOf<Traits, Out>::Type, Traits, Out>(p, ctx, threads);
  if constexpr (!kIsComplex<typename Traits::Element>) {
    if (run_few_rows<typename Traits::Element, Out>(p, ctx, threads)) return;
  }
  if constexpr (requires { requires Traits::kReadsInPlace; }) {
    if (InPlace<Traits>::suits(p.m, p.n, p.k, p.batch > 1 ? 1 : threads))
      return run_batch<InPlace<Traits>, Traits, Out>(p, ctx, threads);
    if (PanelDot<Traits, Out>::suits(p, p.batch > 1 ? 1 : threads))
      return run_batch<PanelDot<Traits, Out>, Traits, Out>(p, ctx, threads);
    if (p.batch == 1 && ByColumns<Traits, Out>::suits(p, threads))
      return run_batch<ByColumns<Traits, Out>, Traits, Out>(p, ctx, threads);
  }
  const int64_t tiles = ceil_div(p.m, Traits::kMR) * ceil_div(p.n, Traits::kNR);
  if (threads > 1 && tiles < 8 * threads && p.k >= 4 * Traits::kKC && p.m * p.n <= 128 * 128) {
    // No part is empty, however many threads there are.
    const SplitK<Traits, Out> split(p.m, p.n, p.k,
                                    static_cast<int>(min<int64_t>(threads, p.k / Traits::kKC)));
    char* scratch = static_cast<char*>(ctx.allocate(split.bytes()));
    for (int64_t i = 0; i < p.batch && !stopped(ctx); ++i)
      split.run(product_of<Traits, Out>(p, i), ctx, scratch);
  } else {
    run_batch<typename EngineOf<Traits, Out>::Type, Traits, Out>(p, ctx, threads);
  }
}

// Calls f.template operator()<Out>() with the type of the result.
template <class Traits, class F>
FASTGEMM_INLINE void with_out(const GemmProblem& p, F&& f) {
  using Acc = typename Traits::Acc;
  using Element = typename Traits::Element;
  if constexpr (std::is_same_v<Acc, float> && !std::is_same_v<Element, float>) {
    if (p.out_type == p.type) return f.template operator()<Element>();
  }
  f.template operator()<Acc>();
}

// The entry points of kernels that use the engine: with all routes and all cores, or with only the five
// loops.
template <class Traits>
void run_engine(const GemmProblem& p, Context& ctx) {
  with_out<Traits>(p, [&]<class Out>() {
    if (!run_tiny<typename Traits::Element, Out>(p, ctx)) run_routes<Traits, Out>(p, ctx);
  });
}
template <class Traits>
void run_five_loops(const GemmProblem& p, Context& ctx, int threads) {
  with_out<Traits>(
      p, [&]<class Out>() { run_batch<typename EngineOf<Traits, Out>::Type, Traits, Out>(p, ctx, threads); });
}

}  // namespace fastgemm::FASTGEMM_ISA
