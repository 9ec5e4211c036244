// Level 6 for products of few elements or a short k, which end before the caches are warm. Such a call is a
// chain of latencies: the launch, instructions that no cache holds, one or two loads from DRAM, stores. What
// changes from small_tile:
//   - operands do not go through shared memory: a lane reads its fragments of A and B in place, at any
//     stride, and all loads of a step are in flight at once (fast/direct.cuh). No layout or alignment needs
//     code of its own;
//   - block tiles are 32 x 32, so that 100 x 100 is 16 blocks. Where tiles are few, up to 12 warps share the
//     k of a tile and add their sums in shared memory, in a fixed order; where they are fewer still, blocks
//     share it, too (parts/schedules/split_k.cuh). Where tiles are many, each warp has a tile of its own;
//   - a step has one of two depths: for k up to 8 elements (16-bit types: 16) it has half the loads and
//     registers.
// float32 is multiplied in fp64, where its products are exact. So level 6 takes this kernel for float32 only
// on GPUs whose fp64 is fast. For float64, level 6 takes this kernel if there would be few large tiles; for
// smaller types, if other kernels would copy operands first. `narrow` serves products of up to about 16 rows
// or columns by fused multiply-adds; each of the two is the faster one for some shapes
// (benchmarks/fits/h200.json).
#include "cuda/gemm/fast/direct.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/predict/plans.h"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// A step has `values` values of each slot of a fragment, 2 or 4.
template <class T, class O, bool word_a, bool word_b, int values>
struct Config {
  using Type = T;
  using Offset = O;
  using Sum = typename DirectType<T>::Sum;
  static constexpr bool kWordsA = word_a, kWordsB = word_b;
  static constexpr int BM = 32, BN = 32;
  static constexpr int kValues = values;
  static constexpr int kWarps = plans::direct_warps(sizeof(T), values);  // at most
  static constexpr int kBlocks = values == 4 || sizeof(O) == 8 ? 1 : sizeof(T) == 2 ? 5 : 4;
  static constexpr int kDepth = plans::direct_depth(sizeof(T), values);  // values of k in a warp's step
  static constexpr int kPitch = BN + 8;                                  // no conflicts in either direction
  static constexpr int kSlabs = values == 4 ? 32 / int(sizeof(Sum)) : 4;
  static constexpr bool kMayFuse = word_a == word_b && (kIsHalf<T> || std::is_same_v<T, float>);
};

template <class C>
struct Arguments {
  using T = typename C::Type;
  DirectOperand<T, typename C::Offset> a, b;
  int k;
  int together;    // warps that share a tile: 1, 2, or all 4 to 12 of the block
  int tiles_log2;  // 1 << tiles_log2 tiles of a block lie side by side along x
  bool x_is_rows;  // x counts rows of tiles; gridDim.x may be larger than gridDim.y
  int steps, batch;
  SplitStages split;
  Result<T> result;
  int columns;  // columns of the result to write
  [[no_unique_address]] EpilogueOf<C> epilogue;
};

template <class C>
using Slab = typename C::Sum[C::BM * C::kPitch];  // (BM, BN)

// Writes the warp's sums to a slab, or adds them to it.
template <bool add, class C>
__device__ __forceinline__ void put(Slab<C>& slab, const typename C::Sum (&sum)[C::BM / 16][C::BN / 8][4]) {
  using Pair = Vector<typename C::Sum, 2>;
  const int lane = int(threadIdx.x) % 32;
  FASTGEMM_UNROLL
  for (int i = 0; i < C::BM / 16; ++i) {
    FASTGEMM_UNROLL
    for (int j = 0; j < C::BN / 8; ++j) {
      FASTGEMM_UNROLL
      for (int half = 0; half < 2; ++half) {
        auto* const to = &slab[(16 * i + 8 * half + lane / 4) * C::kPitch + 8 * j + 2 * (lane % 4)];
        Pair pair{sum[i][j][2 * half], sum[i][j][2 * half + 1]};
        if constexpr (add) {
          const Pair before = load_vector<Pair>(to);
          pair[0] += before[0], pair[1] += before[1];
        }
        store_vector(to, pair);
      }
    }
  }
}

// Brings the sums of all warps into slabs. Warps without a slab of their own add to another warp's, the last
// warps first.
template <class C>
__device__ __forceinline__ void put_all(Slab<C>* slabs,
                                        const typename C::Sum (&sum)[C::BM / 16][C::BN / 8][4], int w,
                                        bool has_sums, int busy) {
  if constexpr (C::kWarps > C::kSlabs) {
    FASTGEMM_NO_UNROLL
    for (int turn = (busy - 1) / C::kSlabs; turn > 0; --turn) {
      if (w / C::kSlabs == turn && has_sums)
        w + C::kSlabs < busy ? put<true, C>(slabs[w % C::kSlabs], sum)
                             : put<false, C>(slabs[w % C::kSlabs], sum);
      __syncthreads();
    }
    if (w < C::kSlabs && w + C::kSlabs < busy) {
      put<true, C>(slabs[w], sum);
      has_sums = false;
    }
  }
  if (w < C::kSlabs && has_sums) put<false, C>(slabs[w], sum);
  __syncthreads();
}

// Stores a quarter of a tile, summed over `count` slabs: rows `first`, first + step, and so on.
template <class Out, class C>
__device__ __forceinline__ void store_rows(const Arguments<C>& g, const Result<typename C::Type>& r,
                                           const Slab<C>* slabs, int count, int first, int step, int row0,
                                           int column0) {
  constexpr int kRows = C::BM / 4;
  const int lane = int(threadIdx.x) % 32, column = column0 + lane;
  const auto at = [&](int s, int i) { return slabs[s][(first + i * step) * C::kPitch + lane]; };
  typename C::Sum sum[kRows];
  FASTGEMM_UNROLL
  for (int i = 0; i < kRows; ++i) sum[i] = at(0, i);
  FASTGEMM_NO_UNROLL
  for (int s = 1; s < count; ++s) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kRows; ++i) sum[i] += at(s, i);
  }
  if (column >= g.columns) return;
  int row = row0 + first;
  Out* to = static_cast<Out*>(r.out) + row * r.row_stride + column;
  FASTGEMM_UNROLL
  for (int i = 0; i < kRows; ++i, row += step, to += step * r.row_stride) {
    if (row >= g.a.side) continue;
    const auto value = Accumulator<typename C::Type>(sum[i]);
    if constexpr (kFuses<C>)
      *to = round_to<Out>(finished<Out>(g.epilogue, r, row, column, value));
    else
      *to = round_to<Out>(r.template blend<Out>(row, column, value));
  }
}

template <class C>
__global__ void __launch_bounds__(32 * C::kWarps, C::kBlocks)
    gemm_direct_kernel(const __grid_constant__ Arguments<C> g) {
  using T = typename C::Type;
  using Value = typename DirectType<T>::Value;
  FASTGEMM_SHARED Slab<C> slabs[C::kSlabs];
  const int w = warp_index(), together = g.together, part = together < 4 ? w & (together - 1) : w;
  const int x = int(blockIdx.x << g.tiles_log2) + ((w - part) >> (2 - g.tiles_log2));
  const int y = int(blockIdx.y);
  const int row0 = (g.x_is_rows ? x : y) * C::BM, column0 = (g.x_is_rows ? y : x) * C::BN;
  int step = 0, end = g.steps, matrix = int(blockIdx.z);
  if (g.split.share > 0) {  // blocks share k
    const int split = matrix / g.batch;
    matrix -= split * g.batch, step = g.split.begin(split), end = g.split.begin(split + 1);
  }
  const int busy = max(1, min(end - step, together));  // warps that have sums
  step += part;
  typename C::Sum sum[C::BM / 16][C::BN / 8][4] = {};
  if (step < end && row0 < g.a.side && column0 < g.b.side) {
    const int first_k = step * C::kDepth, apart = together * C::kDepth;
    using Offset = typename C::Offset;
    DirectFragment<T, Offset, C::BM / 8, C::kValues, C::kWordsA> from_a(g.a, matrix, row0, first_k);
    DirectFragment<T, Offset, C::BN / 8, C::kValues, C::kWordsB> from_b(g.b, matrix, column0, first_k);
    int left = g.k - first_k - int(threadIdx.x) % 4 * DirectType<T>::kPacked;
    FASTGEMM_NO_UNROLL
    for (; step < end; step += together, left -= apart) {
      Value a[C::BM / 8][C::kValues], b[C::BN / 8][C::kValues];
      from_a.load(a, left, apart);
      from_b.load(b, left, apart);
      multiply_direct<T, C::BM / 16, C::BN / 8, C::kValues>(sum, a, b);
    }
  }
  launch_dependents();

  put_all<C>(slabs, sum, w, part < busy, busy);
  if (w >= 4) return;
  Result<T> r = g.result;
  r.out = static_cast<char*>(r.out) + blockIdx.z * r.batch_stride * r.out_bytes();
  r.c = static_cast<const char*>(r.c) + blockIdx.z * r.c_batch_stride * r.out_bytes();
  const auto store_as = [&]<class Out>() {
    const Slab<C>* const from = &slabs[w - part];
    const int count = min(busy, C::kSlabs), stores = min(together, 4);
    FASTGEMM_NO_UNROLL
    for (int quarter = 0; quarter < 4; quarter += stores)
      store_rows<Out, C>(g, r, from, count, C::BM / 4 * quarter + part, stores, row0, column0);
  };
  if constexpr (Result<T>::kMayBeWide) {
    if (r.wide) return store_as.template operator()<float>();
  }
  store_as.template operator()<typename Result<T>::Stored>();
}

template <class C, class T>
void launch_direct(const Gemm<T>& g, int batch, const Epilogue& epilogue, Context& context) {
  const int64_t tiles_m = ceil_div(g.m, C::BM), tiles_n = ceil_div(g.n, C::BN);
  const int64_t steps = ceil_div(g.k, C::kDepth);
  const plans::DirectPlan plan =
      plans::plan_direct(batch * tiles_m * tiles_n, steps, C::kWarps, batch, multiprocessors());
  const int64_t x = std::max(tiles_m, tiles_n), y = std::min(tiles_m, tiles_n);
  const int tiles_log2 = plan.together == 1 ? 2 : plan.together == 2 ? 1 : 0;
  const dim3 grid(unsigned(ceil_div(x, 1 << tiles_log2)), unsigned(y), unsigned(batch * plan.splits));
  const LaunchShape shape{grid, dim3(32 * unsigned(std::max(plan.together, 4)))};
  launch_splits(g, batch, plan.splits, epilogue, context, [&](const Result<T>& result, int64_t columns) {
    const auto split = plan.splits > 1 ? SplitStages(int(steps), plan.splits) : SplitStages(0, 1);
    using Offset = typename C::Offset;
    const auto run = [&]<class S>() {
      const Arguments<S> arguments{.a = direct_operand<Offset>(side_a(g, batch)),
                                   .b = direct_operand<Offset>(side_b(g, batch)),
                                   .k = int(g.k),
                                   .together = plan.together,
                                   .tiles_log2 = tiles_log2,
                                   .x_is_rows = tiles_m > tiles_n,
                                   .steps = int(steps),
                                   .batch = batch,
                                   .split = split,
                                   .result = result,
                                   .columns = int(columns),
                                   .epilogue = EpilogueOf<S>(epilogue)};
      launch<gemm_direct_kernel<S>>("direct", shape, context)(arguments);
    };
    if constexpr (C::kMayFuse) {
      if (epilogue.asked() && plan.splits == 1) return run.template operator()<Fusing<C>>();
    }
    run.template operator()<C>();
  });
}

// Offsets inside a tile and a step have 32 bits, or 64 where strides are huge.
template <class T>
void choose_direct(const Gemm<T>& g, int batch, const Epilogue& epilogue, Context& context) {
  constexpr int64_t kMostStride = int64_t{1} << 21;  // so that 32 rows, or 512 values of k, stay below 2^31
  const auto is_huge = [](int64_t stride) { return std::abs(stride) > kMostStride; };
  if (is_huge(g.a.row_stride) || is_huge(g.a.col_stride) || is_huge(g.b.row_stride) ||
      is_huge(g.b.col_stride))
    return launch_direct<Config<T, int64_t, false, false, 2>>(g, batch, epilogue, context);
  const auto run = [&]<bool word_a, bool word_b>() {
    using Short = Config<T, int, word_a, word_b, 2>;
    plans::direct_values(sizeof(T), g.k) == 2
        ? launch_direct<Short>(g, batch, epilogue, context)
        : launch_direct<Config<T, int, word_a, word_b, 4>>(g, batch, epilogue, context);
  };
  if constexpr (constexpr int kPacked = DirectType<T>::kPacked; kPacked > 1) {
    const bool a = takes_loads_of(kPacked, true, side_a(g, batch), batch);
    const bool b = takes_loads_of(kPacked, true, side_b(g, batch), batch);
    if (a && b) return run.template operator()<true, true>();
    const bool fuses = epilogue.asked();  // kernels with an epilogue have fewer variants
    if (a && !fuses) return run.template operator()<true, false>();
    if (b && !fuses) return run.template operator()<false, true>();
  }
  run.template operator()<false, false>();
}

}  // namespace

void gemm_direct(const GemmProblem& problem, Context& context) {
  const Epilogue epilogue = by_rows(problem).epilogue;
  run_gemm<double, float, Half, BFloat16, int8_t>(
      problem, context, [&](const auto& g, int batch) { choose_direct(g, batch, epilogue, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
