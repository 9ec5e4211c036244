// Deterministic split-K: when C has too few tiles to occupy the device, several blocks share the k of a tile,
// write their sums as matrices of their own, and a second launch adds those in order.
#pragma once

#include "cuda/gemm/level5_panel.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// How many ways to split k so that tiles * splits fill `slots` resident blocks, each with at least `least` of
// k.
inline int choose_splits(int64_t tiles, int64_t slots, int64_t k, int64_t least) {
  return int(std::clamp<int64_t>(slots / std::max<int64_t>(tiles, 1), 1, std::max<int64_t>(k / least, 1)));
}

// The output of the split products: splits x batch matrices of m x n sums, in the workspace.
template <class Word>
Output<Word> partial_output(int64_t m, int64_t n, int64_t matrices, Context& context) {
  Output<Word> o{};
  o.result.out = context.allocate(size_t(m * n * matrices) * sizeof(Word));
  o.result.row_stride = n;
  o.result.batch_stride = m * n;
  o.result.alpha = 1;
  o.stored = sizeof(Word) == 8 ? DType::f64 : std::is_same_v<Word, float> ? DType::f32 : DType::i32;
  return o;
}

// out = alpha * (the sum of the partial matrices) + beta * c.
template <class Word>
void add_partials(const Output<Word>& partials, const Output<Word>& out, int64_t m, int64_t n, int batch,
                  int splits, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
