// Level 6 since sm_80 for small products and batches of them. What changes from mma_sync:
//   - block tiles of 64 x 64, so that 64 products of 128 x 128 x 128 are 256 blocks, and three blocks on a
//     multiprocessor, which hide each other's latencies;
//   - a block requests four stages at once. For k up to 256 (bytes: 512) that is the whole k: one wait, the
//     products, one store;
//   - there is one launch and nothing before it: no TMA descriptors and no flags to clear, and operands are
//     read in place, whatever their alignment (parts/line_copy.cuh);
//   - on Hopper the same stages are multiplied by wgmma (fast/small_tile_products.cuh);
//   - where tiles are few and k is long, k is split (parts/schedules/split_k.cuh).
// Such a small product finds cold caches, the instruction cache included: the launch and the copies take most
// of its time. So the code is short, and even shorter for operands of whole tiles. Operands are loaded
// evict-first, which leaves L2 to data that is used again.
#include "cuda/available.h"
#include "cuda/gemm/fast/small_tile_products.cuh"
#include "cuda/gemm/parts/overlaps.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/parts/storage_element.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Block tile, warp tile, stages, blocks on a multiprocessor.
using MmaTiles = TileConfig<64, 64, 32, 32, 4, 3>;
using WgmmaTiles = TileConfig<64, 64, 16, 64, 4, 3>;
template <class C>
constexpr bool kByWgmma = std::is_base_of_v<WgmmaTiles, C>;

// The fields that the first copies need come first, because the constant cache is cold, too.
template <class T>
struct Arguments {
  int splits;
  unsigned tiles_n;
  SplitStages stages;
  LineOperand<T> a, b;
  SplitSums<Accumulator<T>> sums;  // used with several splits
  Gemm<T> gemm;
  ResultVectors vectors;
  bool plain;         // rows of the result are whole vectors of its type, and beta is 0
  Epilogue epilogue;  // used by kernels that fuse it
};

template <class C, class T, bool a_along_k, bool b_along_k, bool aligned>
struct Kernel {
  using Storage = StorageElement<T>;
  using TileA = LineTile<Storage, a_along_k, C::BM, SwizzledLines<8>>;  // (BM, 128 bytes)
  using TileB = LineTile<Storage, b_along_k, C::BN, SwizzledLines<8>>;  // (BN, 128 bytes)
  using Products =
      std::conditional_t<kByWgmma<C>, WgmmaProducts<C, T, TileA, TileB>, MmaProducts<C, T, TileA, TileB>>;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  using CopyA = LineCopy<TileA, Storage, C::kThreads, C::kStages, kStageBytes, aligned>;
  using CopyB = LineCopy<TileB, Storage, C::kThreads, C::kStages, kStageBytes, aligned>;
  union Shared {
    unsigned char ring[C::kStages][kStageBytes];
    WarpSlab<Accumulator<T>, C::WM, C::WN> slabs[C::kWarps];
  };
};

// Loads COUNT sums from a row of the slab. If they are two vectors, half of the lanes load the second vector
// first: lanes whose sums are 32 words apart would otherwise read from the same banks at the same time.
template <int COUNT, class Acc>
__device__ __forceinline__ void load_sums(Acc (&to)[COUNT], const Acc* from, int lane) {
  using Four = Vector<Acc, 4>;
  constexpr int kVectors = COUNT / 4;
  static_assert(kVectors <= 2);
  const int second_first = kVectors == 2 ? lane / 4 % 2 : 0;
  Four part[kVectors];
  FASTGEMM_UNROLL
  for (int i = 0; i < kVectors; ++i) part[i] = load_vector<Four>(from + 4 * (i ^ second_first));
  FASTGEMM_UNROLL
  for (int i = 0; i < COUNT; ++i)
    to[i] = second_first ? part[kVectors - 1 - i / 4][i % 4] : part[i / 4][i % 4];
}

// Stores alpha times a warp's sums to C, whose rows are whole vectors.
template <class C, class T>
__device__ __forceinline__ void store_plain(const Arguments<T>& g, const Accumulator<T>* sums, int pitch,
                                            int batch, int row0, int column0) {
  using Out = typename Result<T>::Stored;
  constexpr int N = kPer16Bytes<Out>, kAcross = C::WN / N, kDown = 32 / kAcross;
  const int lane = int(threadIdx.x) % 32, column = lane % kAcross * N;
  if (column0 + column >= g.gemm.n) return;
  const Result<T>& r = g.gemm.result;
  int row = lane / kAcross;
  Out* to =
      static_cast<Out*>(r.out) + batch * r.batch_stride + (row0 + row) * r.row_stride + column0 + column;
  FASTGEMM_NO_UNROLL
  for (; row < C::WM && row0 + row < g.gemm.m; row += kDown, to += kDown * r.row_stride) {
    Accumulator<T> sum[N];
    load_sums(sum, sums + row * pitch + column, lane);
    Vector16<Out> v;
    FASTGEMM_UNROLL
    for (int i = 0; i < N; ++i) v[i] = round_to<Out>(r.alpha * sum[i]);
    store_vector(to, v);
  }
}

template <class C, class K, class T>
__device__ __forceinline__ void multiply_tile(const Arguments<T>& g) {
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  unsigned column_tile = blockIdx.y, split = 0;
  if (g.splits > 1) split = column_tile / g.tiles_n, column_tile %= g.tiles_n;
  const int row0 = int(blockIdx.x) * C::BM, column0 = int(column_tile) * C::BN, batch = int(blockIdx.z);
  const int begin = g.stages.begin(int(split)), stages = g.stages.begin(int(split) + 1) - begin;

  grid_dependency_wait();
  typename K::CopyA a(g.a, batch, row0, begin, shared->ring[0]);
  typename K::CopyB b(g.b, batch, column0, begin, shared->ring[0] + K::TileA::kBytes);
  const auto copy_next = [&] { a.copy(), b.copy(); };
  FASTGEMM_NO_UNROLL
  for (int i = 0; i < C::kStages; ++i) {
    if (i < stages) copy_next();
    commit_async_copies();  // also an empty group, so that groups are counted like stages
  }
  launch_dependents();
  const int w = warp_index(), row = w % C::kWarpsM * C::WM, column = w / C::kWarpsM * C::WN;
  typename K::Products products(shared->ring[0], row, column);
  products.multiply(stages, copy_next);

  if (g.splits > 1) {
    g.sums.put(int(split), batch, row0 + row, column0 + column, products.sum());
    return;
  }
  __syncthreads();  // slabs may now overwrite the ring
  auto& slab = shared->slabs[w];
  slab.put(products.sum());
  __syncwarp();
  if constexpr (kFuses<C>) {
    finish_slab(slab, g.gemm, g.epilogue, row0 + row, column0 + column);
    __syncwarp();
  }
  if (g.plain)
    store_plain<C>(g, slab.sums, slab.kPitch, batch, row0 + row, column0 + column);
  else
    slab.store(g.gemm.at_batch(batch), g.vectors, row0 + row, column0 + column);
}

template <class C, class T, bool a_along_k, bool b_along_k, bool aligned>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_small_tile_kernel(const __grid_constant__ Arguments<StorageElement<T>> g) {
  if constexpr (FASTGEMM_SM90A || !kByWgmma<C>)
    multiply_tile<C, Kernel<C, T, a_along_k, b_along_k, aligned>>(g);
}

// Returns the operand in place. Bytes that do not lie along k are copied, because ldmatrix cannot transpose
// them.
template <class T>
LineOperand<T> operand_of(Side<T> s, int batch, Context& context) {
  if (sizeof(T) == 1 && s.k > 1 && s.k_stride != 1) {
    const PackedRows<T> rows =
        pack_rows(s.data, s.side, s.k, s.side_stride, s.k_stride, s.batch_stride, batch, context);
    s = {rows.data, s.side, s.k, rows.row_stride, 1, rows.batch_stride};
  }
  return line_operand(s, batch);
}

// Multiplies elements of T, which are copied as elements of Storage.
template <class C, class T, class Storage>
void launch_small_tile(const Gemm<Storage>& g, int batch, const Epilogue& epilogue, Context& context) {
  const int64_t tiles_m = ceil_div(g.m, C::BM), tiles_n = ceil_div(g.n, C::BN);
  const int stages = int(ceil_div(g.k, 128 / int(sizeof(T))));
  const int splits = plans::small_tile_splits(batch * tiles_m * tiles_n, stages, multiprocessors());
  const dim3 grid(unsigned(tiles_m), unsigned(tiles_n * splits), unsigned(batch));
  const ResultVectors vectors = result_vectors(g.result);
  Arguments<Storage> s{
      .splits = splits,
      .tiles_n = unsigned(tiles_n),
      .stages = SplitStages(stages, splits),
      .a = operand_of(side_a(g, batch), batch, context),
      .b = operand_of(side_b(g, batch), batch, context),
      .gemm = g,
      .vectors = vectors,
      .plain = vectors.out && !g.result.wide && g.result.beta == 0 && g.n % kPer16Bytes<T> == 0,
      .epilogue = epilogue};
  const bool whole_k = g.k % (128 / int(sizeof(T))) == 0;
  s.a.whole = whole_k && g.m % C::BM == 0, s.b.whole = whole_k && g.n % C::BN == 0;
  if (splits > 1) s.sums = split_sums(g, batch, splits, context);
  const auto run = [&]<bool aligned, bool... along_k>() {
    using K = Kernel<C, T, along_k..., aligned>;
    const LaunchShape shape{grid, dim3(C::kThreads), sizeof(typename K::Shared), overlaps_well(g, batch)};
    launch<gemm_small_tile_kernel<C, T, along_k..., aligned>>("small_tile", shape, context)(s);
  };
  if constexpr (kFuses<C>) {
    s.a.aligned&& s.b.aligned ? run.template operator()<true, true, true>()
                              : run.template operator()<false, true, true>();
  } else {
    constexpr OperandLayout kLayout = sizeof(T) == 1 ? OperandLayout::along_k : OperandLayout::any;
    RowsOperands<Storage>{s.a, s.b}.template with_directions<kLayout>([&]<bool... along_k>() {
      s.a.aligned&& s.b.aligned ? run.template operator()<true, along_k...>()
                                : run.template operator()<false, along_k...>();
    });
  }
  if (splits > 1) add_splits(s.sums, g, context, epilogue);
}

}  // namespace

void gemm_small_tile(const GemmProblem& problem, Context& context) {
  run_with_storage<Half, BFloat16>(problem, context, [&]<class T>(const auto& g, int batch) {
    if constexpr (sizeof(T) == 2) {
      const Epilogue& e = problem.epilogue;
      if (e.asked())
        return cuda::has_wgmma() ? launch_small_tile<Fusing<WgmmaTiles>, T>(g, batch, e, context)
                                 : launch_small_tile<Fusing<MmaTiles>, T>(g, batch, e, context);
    }
    cuda::has_wgmma() ? launch_small_tile<WgmmaTiles, T>(g, batch, {}, context)
                      : launch_small_tile<MmaTiles, T>(g, batch, {}, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
