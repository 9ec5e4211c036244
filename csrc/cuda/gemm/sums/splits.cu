// The second launch of split-K on tensor cores.
#include "cuda/device/sync.cuh"
#include "cuda/gemm/sums/splits.cuh"
#include "cuda/gemm/vector_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// A block has 32 vectors of C, one a lane; its warps share the splits. A thread asks for kAtOnce of them at
// once, which of 132 splits are all.
constexpr int kAtOnce = 9, kMostWarps = 16;

template <class T>
struct AddArguments {
  SplitSums<Accumulator<T>> from;
  Gemm<T> gemm;
  ResultVectors vectors;
};

template <class T>
__global__ void __launch_bounds__(32 * kMostWarps, 2)
    gemm_add_splits_kernel(const __grid_constant__ AddArguments<T> s) {
  using Acc = Accumulator<T>;
  using Sum = Vector16<Acc>;
  FASTGEMM_SHARED Sum sums[kMostWarps][32];
  const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32), warps = int(blockDim.x / 32);
  const int64_t first = (int64_t(blockIdx.x) * 32 + lane) * 4;  // of a matrix of sums
  const int64_t row = first / s.from.pitch, column = first - row * s.from.pitch;
  const int64_t split = s.from.batch * s.from.matrix;
  const Acc* const from = s.from.data + blockIdx.z * s.from.matrix + first + warp * split;
  const int splits = row < s.from.m ? s.from.splits : 0;
  Sum sum{};
  const auto add_until = [&](int end) {
    const Acc* p = from;
    int i = warp;
    do {
      Sum next[kAtOnce] = {};
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce; ++j, i += warps, p += warps * split)
        if (i < end) next[j] = load_vector<Sum>(p);
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        FASTGEMM_UNROLL
        for (int e = 0; e < 4; ++e) sum[e] += next[j][e];
      }
    } while (i < end);
  };
  // Once for nothing: while the kernel before runs, the instructions come.
  FASTGEMM_NO_UNROLL
  for (int round = 0; round < 2; ++round) {
    if (round > 0) wait_for_kernel_before();
    add_until(round * splits);
  }
  store_vector(&sums[warp][lane], sum);
  __syncthreads();
  if (warp > 0 || splits == 0 || column >= s.from.n) return;
  FASTGEMM_UNROLL
  for (int i = 1; i < kMostWarps; ++i) {
    if (i >= warps) break;
    const Sum next = load_vector<Sum>(&sums[i][lane]);
    FASTGEMM_UNROLL
    for (int e = 0; e < 4; ++e) sum[e] += next[e];
  }
  const Gemm<T> g = s.gemm.at_batch(blockIdx.z);
  const int valid = inside(g.n, column, 4);
  if constexpr (Result<T>::kMayBeWide) {
    if (g.result.wide) return store_row_as<float, 4>(g.result, s.vectors, row, column, &sum[0], valid);
  }
  store_row_as<typename Result<T>::Narrow, 4>(g.result, s.vectors, row, column, &sum[0], valid);
}

}  // namespace

template <class T>
void add_splits(const SplitSums<Accumulator<T>>& from, const Gemm<T>& g, Context& context) {
  const int warps = std::min(int(ceil_div(from.splits, kAtOnce)), kMostWarps);
  const LaunchShape shape{dim3(unsigned(ceil_div(from.matrix, 4 * 32)), 1, unsigned(from.batch)),
                          dim3(unsigned(32 * warps)), 0, true};
  launch<gemm_add_splits_kernel<T>>("add_splits", shape, context)({from, g, result_vectors(g.result)});
}

template void add_splits(const SplitSums<float>&, const Gemm<Half>&, Context&);
template void add_splits(const SplitSums<float>&, const Gemm<BFloat16>&, Context&);
template void add_splits(const SplitSums<uint32_t>&, const Gemm<int8_t>&, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
