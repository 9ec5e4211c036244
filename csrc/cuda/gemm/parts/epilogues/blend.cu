// The second launch for products whose sums go to the workspace first (parts/epilogues/blend.cuh).
#include "cuda/gemm/parts/epilogues/blend.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kColumns = 256, kRows = 8;  // per block; each thread has one column

// All of a thread's loads come before its stores, so that they are in flight together.
template <class Out, class T, class Acc>
__device__ __forceinline__ void blend_rows(const Gemm<T>& g, const Acc* sums, int64_t row_stride, int64_t row,
                                           int64_t column) {
  Acc value[kRows];
  FASTGEMM_UNROLL
  for (int i = 0; i < kRows; ++i)
    if (row + i < g.m)
      value[i] = g.result.template blend<Out>(row + i, column, sums[(row + i) * row_stride + column]);
  FASTGEMM_UNROLL
  for (int i = 0; i < kRows; ++i)
    if (row + i < g.m) g.result.template put<Out>(row + i, column, value[i]);
}

template <class T>
__global__ void __launch_bounds__(kColumns)
    gemm_blend_kernel(const __grid_constant__ Gemm<T> all, const __grid_constant__ Result<T> sums) {
  using Acc = Accumulator<T>;
  const Gemm<T> g = all.at_batch(blockIdx.z);
  const Acc* const from = static_cast<const Acc*>(sums.out) + blockIdx.z * sums.batch_stride;
  const int64_t column = int64_t(blockIdx.x) * kColumns + threadIdx.x;
  if (column >= g.n) return;
  for (int64_t row = int64_t(blockIdx.y) * kRows; row < g.m; row += int64_t(gridDim.y) * kRows) {
    if (Result<T>::kMayBeWide && g.result.wide)
      blend_rows<float>(g, from, sums.row_stride, row, column);
    else
      blend_rows<typename Result<T>::Stored>(g, from, sums.row_stride, row, column);
  }
}

}  // namespace

template <class T>
void blend(const Gemm<T>& g, const Result<T>& sums, int batch, Context& context) {
  constexpr int64_t kMostBlocksY = 65535;
  const dim3 grid(unsigned(ceil_div(g.n, kColumns)), unsigned(std::min(ceil_div(g.m, kRows), kMostBlocksY)),
                  unsigned(batch));
  launch<gemm_blend_kernel<T>>("blend", {grid, dim3(kColumns)}, context)(g, sums);
}

template void blend(const Gemm<float>&, const Result<float>&, int, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
