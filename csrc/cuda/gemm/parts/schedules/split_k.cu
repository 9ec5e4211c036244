// The second launch of split-K (parts/schedules/split_k.cuh).
#include "cuda/device/sync.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/float_dot.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// A block has 32 vectors of C, one for each lane, and its warps share the splits. A thread has kAtOnce loads
// in flight. With 16 warps that is up to 144 splits at once.
constexpr int kAtOnce = 9, kMostWarps = 16;

template <class T, class Finish>
struct AddArguments {
  SplitSums<Accumulator<T>> from;
  Gemm<T> gemm;
  ResultVectors vectors;
  [[no_unique_address]] EpilogueOf<Finish> epilogue;
};

template <class T, class Finish>
__global__ void __launch_bounds__(32 * kMostWarps, 2)
    gemm_add_splits_kernel(const __grid_constant__ AddArguments<T, Finish> s) {
  using Acc = Accumulator<T>;
  using Sum = Vector16<Acc>;
  constexpr int N = kPer16Bytes<Acc>;
  FASTGEMM_SHARED Sum sums[kMostWarps][32];
  const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32), warps = int(blockDim.x / 32);
  const auto place = [&](int of_lane) {
    const int64_t first = (int64_t(blockIdx.x) * 32 + of_lane) * N, row = first / s.from.pitch;
    return Element{row, first - row * s.from.pitch};
  };
  const Element here = place(lane);
  const int64_t split = s.from.batch * s.from.matrix;
  const Acc* const from =
      s.from.data + blockIdx.z * s.from.matrix + (int64_t(blockIdx.x) * 32 + lane) * N + warp * split;
  const int splits = here.row < s.from.m ? s.from.splits : 0;
  Sum sum{};
  // The first round adds nothing. It only brings the instructions into the cache while the kernel before
  // runs.
  FASTGEMM_NO_UNROLL
  for (int round = 0; round < 2; ++round) {
    if (round > 0) grid_dependency_wait();
    const Acc* next = from;
    add_vectors<kAtOnce>(sum, round * splits - warp, warps, [&] {
      const Acc* const p = next;
      next += warps * split;
      return p;
    });
  }
  store_vector(&sums[warp][lane], sum);
  __syncthreads();
  if (warp > 0) return;
  FASTGEMM_UNROLL
  for (int i = 1; i < kMostWarps; ++i) {
    if (i >= warps) break;
    const Sum next = load_vector<Sum>(&sums[i][lane]);
    FASTGEMM_UNROLL
    for (int e = 0; e < N; ++e) sum[e] += next[e];
  }
  const Gemm<T> g = s.gemm.at_batch(blockIdx.z);
  const int valid = splits == 0 ? 0 : inside(g.n, here.column, N);
  Finish::finish(sum, g, valid, place);
  if (valid <= 0) return;
  with_stored_type(g.result, [&]<class Out>() {
    if constexpr (kFuses<Finish>)
      store_row_finished<Out, N>(s.epilogue, g.result, s.vectors, here.row, here.column, &sum[0], valid);
    else
      store_row_as<Out, N>(g.result, s.vectors, here.row, here.column, &sum[0], valid);
  });
}

template <class Finish, class T>
void launch_add(const SplitSums<Accumulator<T>>& from, const Gemm<T>& g, const Epilogue& epilogue,
                Context& context) {
  const int warps = std::min(int(ceil_div(from.splits, kAtOnce)), kMostWarps);
  const int64_t vectors = from.matrix / kPer16Bytes<Accumulator<T>>;
  const LaunchShape shape{dim3(unsigned(ceil_div(vectors, 32)), 1, unsigned(from.batch)),
                          dim3(unsigned(32 * warps)), 0, true};
  launch<gemm_add_splits_kernel<T, Finish>>(
      "add_splits", shape, context)({from, g, result_vectors(g.result), EpilogueOf<Finish>(epilogue)});
}

}  // namespace

template <class Finish, class T>
void add_splits(const SplitSums<Accumulator<T>>& from, const Gemm<T>& g, Context& context,
                const Epilogue& epilogue) {
  if constexpr (kIsHalf<T> || std::is_same_v<T, float>) {
    if (epilogue.asked()) return launch_add<Fusing<Finish>>(from, g, epilogue, context);
  }
  launch_add<Finish>(from, g, epilogue, context);
}

template void add_splits<AsAdded>(const SplitSums<double>&, const Gemm<double>&, Context&, const Epilogue&);
template void add_splits<AsAdded>(const SplitSums<float>&, const Gemm<float>&, Context&, const Epilogue&);
template void add_splits<Repaired>(const SplitSums<float>&, const Gemm<float>&, Context&, const Epilogue&);
template void add_splits<AsAdded>(const SplitSums<float>&, const Gemm<Half>&, Context&, const Epilogue&);
template void add_splits<AsAdded>(const SplitSums<float>&, const Gemm<BFloat16>&, Context&, const Epilogue&);
template void add_splits<AsAdded>(const SplitSums<uint32_t>&, const Gemm<int8_t>&, Context&, const Epilogue&);
template void add_splits<AsAdded>(const SplitSums<uint32_t>&, const Gemm<int32_t>&, Context&,
                                  const Epilogue&);
template void add_splits<AsAdded>(const SplitSums<uint64_t>&, const Gemm<int64_t>&, Context&,
                                  const Epilogue&);
template void add_splits<AsAdded>(const SplitSums<uint32_t>&, const Gemm<uint8_t>&, Context&,
                                  const Epilogue&);
template void add_splits<AsAdded>(const SplitSums<uint32_t>&, const Gemm<int16_t>&, Context&,
                                  const Epilogue&);

}  // namespace fastgemm::FASTGEMM_TARGET
