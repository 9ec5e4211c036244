// Deterministic split-K: when C has too few tiles to occupy the device, several blocks share the k of a tile,
// write their sums as matrices of their own, and a second launch adds those in order.
#pragma once

#include "cuda/gemm/level5/panel.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// How many ways to split k, each at least `least` of it. The time of a launch is that of the fullest
// multiprocessor, counted in whole tiles; a block that has one to itself hides less latency, and every split
// costs the transfer of its sums (a quarter of tiles / k, in the same unit, on an H200).
inline int choose_splits(int64_t tiles, int64_t k, int64_t least) {
  const int64_t processors = multiprocessors();
  int best = 1;
  double best_time = double(ceil_div(tiles, processors));
  for (int splits = 2; splits * least <= k && (splits - 1) * tiles < 4 * processors; ++splits) {
    const int64_t blocks = tiles * splits;
    const double alone = blocks <= processors ? 1.15 : 1.0;
    const double time =
        alone * double(ceil_div(blocks, processors)) / splits + 0.25 * double(blocks) / double(k);
    if (time < best_time) best = splits, best_time = time;
  }
  return best;
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
