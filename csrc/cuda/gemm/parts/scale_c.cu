// C = beta * c, the result of a product with k = 0.
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256;  // a block has 256 columns of C; each thread goes down one of them

template <class T>
__global__ void __launch_bounds__(kThreads) gemm_scale_c_kernel(const __grid_constant__ Gemm<T> all) {
  const Gemm<T> g = all.at_batch(blockIdx.z);
  const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= g.n) return;
  for (int64_t row = blockIdx.y; row < g.m; row += gridDim.y) g.result.store(row, column, 0);
}

}  // namespace

template <class T>
void scale_c(const Gemm<T>& g, int batch, Context& context) {
  const dim3 grid(unsigned(ceil_div(g.n, kThreads)), unsigned(std::min<int64_t>(g.m, 65535)),
                  unsigned(batch));
  launch<gemm_scale_c_kernel<T>>("scale_c", {grid, dim3(kThreads)}, context)(g);
}

template void scale_c(const Gemm<double>&, int, Context&);
template void scale_c(const Gemm<float>&, int, Context&);
template void scale_c(const Gemm<Half>&, int, Context&);
template void scale_c(const Gemm<BFloat16>&, int, Context&);
template void scale_c(const Gemm<int8_t>&, int, Context&);
template void scale_c(const Gemm<int32_t>&, int, Context&);
template void scale_c(const Gemm<int64_t>&, int, Context&);
template void scale_c(const Gemm<uint8_t>&, int, Context&);
template void scale_c(const Gemm<MixedBytes<uint8_t, int8_t>>&, int, Context&);
template void scale_c(const Gemm<MixedBytes<int8_t, uint8_t>>&, int, Context&);
template void scale_c(const Gemm<int16_t>&, int, Context&);
template void scale_c(const Gemm<LongInt16>&, int, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
