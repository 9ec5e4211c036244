// Level 1: parallelism. One thread computes one element of C; the threads of a warp stand side by side in a
// row of C, so that a warp reads 32 neighbouring elements of B at a time (for row-major B: 128 contiguous
// bytes, 4 sectors a request) and one broadcast element of A.
//
// The companion naive_uncoalesced differs in one line: its warp walks down a column of C. The 32 lanes read A
// and write C at the distance of a whole row: 32 sectors a request, of which 4 bytes each are used.
#include "cuda/gemm/levels.h"
#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kWarp = 32, kWarps = 8;

template <class T, bool coalesced>
__global__ void __launch_bounds__(kWarp* kWarps) gemm_naive_kernel(Gemm<T> batch, int64_t blocks_n) {
  const Gemm<T> g = batch.at_batch(blockIdx.z);
  // A block covers 8 x 32 elements of C, or 32 x 8.
  const int64_t block_row = blockIdx.x / blocks_n, block_col = blockIdx.x % blocks_n;
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const int64_t row = coalesced ? block_row * kWarps + warp : block_row * kWarp + lane;
  const int64_t col = coalesced ? block_col * kWarp + lane : block_col * kWarps + warp;
  if (row >= g.m || col >= g.n) return;  // no barrier follows, so a thread may leave

  Accumulator<T> sum = 0;
  for (int64_t k = 0; k < g.k; ++k) sum = multiply_add(widen(*g.a.at(row, k)), widen(*g.b.at(k, col)), sum);
  g.result.store(row, col, sum);
}

template <bool coalesced>
void launch_naive(const char* name, const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    const int64_t blocks_m = ceil_div(g.m, coalesced ? kWarps : kWarp);
    const int64_t blocks_n = ceil_div(g.n, coalesced ? kWarp : kWarps);
    const LaunchShape shape{dim3(unsigned(blocks_m * blocks_n), 1, unsigned(batch)), dim3(kWarp * kWarps)};
    launch<gemm_naive_kernel<T, coalesced>>(name, shape, context)(g, blocks_n);
  });
}

void gemm_naive(const GemmProblem& p, Context& c) { launch_naive<true>("naive", p, c); }
void gemm_naive_uncoalesced(const GemmProblem& p, Context& c) {
  launch_naive<false>("naive_uncoalesced", p, c);
}

}  // namespace fastgemm::FASTGEMM_TARGET
