#include "cuda/gemm/parts/choose_splits.cuh"
#include "cuda/gemm/parts/split_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The time of a launch is that of the fullest multiprocessor, counted in whole tiles; a block that has one to
// itself hides less latency, and every split costs the transfer of its sums (a quarter of tiles / k, in the
// same unit, on an H200).
int choose_splits(int64_t tiles, int64_t k, int64_t least) {
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

template <class T>
Gemm<T> split_result(const Gemm<T>& g, int batch, int splits, Context& context) {
  const auto sums = split_sums(g, batch, splits, context);
  Gemm<T> split = g;
  split.result = result_in<T>(sums), split.n = sums.pitch;
  return split;
}

template <class T>
void add_split_result(const Gemm<T>& split, const Gemm<T>& g, int batch, int splits, Context& context) {
  using Acc = Accumulator<T>;
  const Result<T>& r = split.result;
  add_splits(SplitSums<Acc>{static_cast<Acc*>(r.out), r.row_stride, r.batch_stride, int(g.m), int(g.n), batch,
                            splits},
             g, context);
}

#define FASTGEMM_SPLIT_RESULT(T)                                        \
  template Gemm<T> split_result<T>(const Gemm<T>&, int, int, Context&); \
  template void add_split_result<T>(const Gemm<T>&, const Gemm<T>&, int, int, Context&);
FASTGEMM_SPLIT_RESULT(double)
FASTGEMM_SPLIT_RESULT(float)
FASTGEMM_SPLIT_RESULT(Half)
FASTGEMM_SPLIT_RESULT(BFloat16)
FASTGEMM_SPLIT_RESULT(int8_t)
FASTGEMM_SPLIT_RESULT(int32_t)
#undef FASTGEMM_SPLIT_RESULT

}  // namespace fastgemm::FASTGEMM_TARGET
