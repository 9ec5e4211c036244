#include "cuda/gemm/parts/schedules/choose_splits.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {

static_assert(kCpAsyncDepth == plans::kCpAsyncDepth);
int cp_async_splits(int64_t tiles, int64_t steps) {
  return plans::cp_async_splits(tiles, steps, multiprocessors());
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
FASTGEMM_SPLIT_RESULT(int64_t)
FASTGEMM_SPLIT_RESULT(uint8_t)
FASTGEMM_SPLIT_RESULT(int16_t)
#undef FASTGEMM_SPLIT_RESULT

}  // namespace fastgemm::FASTGEMM_TARGET
