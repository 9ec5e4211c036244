// Adds the sums of a float32 product whose k was split. A block has `width` elements of C, and 256 / width
// threads for each of them, so that many splits of few elements are read at once.
#include "cuda/device/sync.cuh"
#include "cuda/gemm/sums/add_splits.cuh"
#include "cuda/gemm/sums/float_dot.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256, kLeastWidth = 32, kSplitsAThread = 4;

__global__ void __launch_bounds__(kThreads)
    gemm_add_splits_kernel(const __grid_constant__ Gemm<float> all, const float* partials, int splits,
                           int width) {
  FASTGEMM_SHARED float parts[kThreads];
  wait_for_kernel_before();
  const int64_t size = all.m * all.n, stride = size * gridDim.z;  // of a split
  const int groups = kThreads / width, group = int(threadIdx.x) / width, x = int(threadIdx.x) % width;
  const int64_t first = int64_t(blockIdx.x) * width;
  const int share = (splits + groups - 1) / groups, begin = group * share, end = min(begin + share, splits);
  const bool there = first + x < size;
  float sum = 0;
  if (there) {
    const float* p = partials + blockIdx.z * size + first + x + begin * stride;
    FASTGEMM_NO_UNROLL
    for (int left = end - begin; left > 0; left -= kSplitsAThread, p += kSplitsAThread * stride) {
      float read[kSplitsAThread];
      FASTGEMM_UNROLL
      for (int i = 0; i < kSplitsAThread; ++i) read[i] = i < left ? p[i * stride] : 0.f;
      FASTGEMM_UNROLL
      for (int i = 0; i < kSplitsAThread; ++i) sum += read[i];
    }
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (group > 0) return;
  FASTGEMM_NO_UNROLL
  for (int other = 1; other < groups; ++other) sum += parts[other * width + x];
  const Gemm<float> g = all.at_batch(blockIdx.z);
  const auto place = [&](int64_t at) {
    const int64_t row = at / g.n;
    return Element{row, at - row * g.n};
  };
  sum = repaired(g, sum, there, [&](int lane) { return place(first + x - x % 32 + lane); });
  const Element c = place(first + x);
  if (there) g.result.store(c.row, c.column, sum);
}

}  // namespace

void add_splits(const float* partials, const Gemm<float>& g, int batch, int splits, Context& context) {
  int width = kThreads;
  while (width > kLeastWidth && kThreads / width * kSplitsAThread < splits) width /= 2;
  const LaunchShape shape{dim3(unsigned(ceil_div(g.m * g.n, width)), 1, unsigned(batch)), dim3(kThreads), 0,
                          true};
  launch<gemm_add_splits_kernel>("add_splits", shape, context)(g, partials, splits, width);
}

}  // namespace fastgemm::FASTGEMM_TARGET
