// The second launch of split-K.
#include "cuda/gemm/level5/split_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256;

template <class Word>
__global__ void __launch_bounds__(kThreads)
    gemm_add_partials_kernel(const Word* partials, Output<Word> out, int64_t n, int64_t size, int batch,
                             int splits) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const Word* p = partials + int64_t(blockIdx.z) * size + i;
  Word sum = 0;
  for (int s = 0; s < splits; ++s, p += batch * size) sum += *p;
  const Output<Word> here = out.at_batch(blockIdx.z);
  here.with_stored([&]<class Out>() { here.result.template store_as<Out>(i / n, i % n, sum); });
}

}  // namespace

template <class Word>
void add_partials(const Output<Word>& partials, const Output<Word>& out, int64_t m, int64_t n, int batch,
                  int splits, Context& context) {
  const LaunchShape shape{dim3(unsigned(ceil_div(m * n, kThreads)), 1, unsigned(batch)), dim3(kThreads)};
  launch<gemm_add_partials_kernel<Word>>("add_partials", shape, context)(
      static_cast<const Word*>(partials.result.out), out, n, m * n, batch, splits);
}

template void add_partials(const Output<double>&, const Output<double>&, int64_t, int64_t, int, int,
                           Context&);
template void add_partials(const Output<float>&, const Output<float>&, int64_t, int64_t, int, int, Context&);
template void add_partials(const Output<uint32_t>&, const Output<uint32_t>&, int64_t, int64_t, int, int,
                           Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
