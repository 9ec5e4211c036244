// The passes of a layer of experts: those that compute, by the instruction set of this processor.
#include <vector>

#include "core/experts.h"
#include "cpu/gemm/by_isa.h"

namespace fastgemm {

// A counting sort. Memory is the limit here, and there are few pairs, so one thread does it.
void cpu::route_tokens(const RouteTokens& g, Context&) {
  std::vector<int32_t> next(size_t(g.experts) + 2);
  const auto each_pair = [&](auto&& body) {
    int64_t pair = 0;
    for (int64_t token = 0; token < g.tokens; ++token)
      for (int64_t j = 0; j < g.chosen; ++j) body(token, pair++, size_t(g.expert_of(token, j)));
  };
  each_pair([&](int64_t, int64_t, size_t expert) { ++next[expert + 1]; });
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  for (int i = 0; i < g.experts; ++i) g.ends[i] = next[size_t(i) + 1];
  each_pair([&](int64_t token, int64_t pair, size_t expert) {
    const int32_t place = next[expert]++;
    g.order[place] = int32_t(pair), g.rows[place] = int32_t(token), g.places[pair] = place;
  });
}

void cpu::combine_rows(const CombineRows& g, Context& ctx) {
  if (g.tokens > 0 && g.columns > 0) FASTGEMM_BY_ISA(combine_rows)(g, ctx);
}

void cpu::combine_gradients(const CombineGradients& g, Context& ctx) {
  if (g.forward.tokens > 0 && g.forward.chosen > 0) FASTGEMM_BY_ISA(combine_gradients)(g, ctx);
}

}  // namespace fastgemm
