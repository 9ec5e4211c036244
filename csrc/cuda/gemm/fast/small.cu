// Level 5 for products too small to fill large tiles: one launch, and operands are read in place. It is built
// from the parts of level 4. Two things are new. While the panels in shared memory are multiplied, the panels
// of the next k are loaded to registers (two buffers, one barrier per panel). And k is split where there are
// fewer tiles than multiprocessors.
//
// `small` has block tiles of 64 x 64. `batched` is the same kernel with tiles of 32 x 32 for batches of small
// matrices: more blocks share a multiprocessor and hide each other's latencies. It stands at level 6, because
// no other kernel of that level comes near it for batches of int32 (benchmarks/fits/h200.json).
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/grouped_vectors.cuh"
#include "cuda/gemm/parts/panel_copy.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/parts/thread_tile.cuh"
#include "cuda/gemm/predict/plans.h"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThread = 4;     // thread tile 4 x 4
constexpr int kUnrolledK = 8;  // keeps the code short: a small product finds a cold instruction cache

template <class T, int BLOCK>
struct Config {
  using Type = T;
  static constexpr int kBlock = BLOCK, kAcross = kBlock / kThread, kThreads = kAcross * kAcross;
  static constexpr int kBK =
      plans::small_depth(sizeof(T));                   // at least one 16-byte load per operand and thread
  static constexpr int kWarpsN = kAcross / 8;          // a warp is 4 x 8 threads, as in thread_place()
  static constexpr bool kOftenOnePanel = BLOCK == 32;  // then a branch around the next loads pays
  // Groups of a thread's positions are 16 vectors apart (ThreadTile), so kAcross has to be 16 unless there is
  // only one group.
  static_assert(kAcross == 16 || kPer16Bytes<Accumulator<T>> == kThread);
  using Panel = PanelCopy<T, kBlock, kBK, kThreads>;
  struct alignas(16) Buffers {
    Accumulator<T> a[2][kBK * Panel::kPitch];  // (BK, kBlock): k, m
    Accumulator<T> b[2][kBK * Panel::kPitch];  // (BK, kBlock): k, n
  };
};

template <class C, class G>
struct SmallArguments {
  G gemm;
  unsigned tiles_n;
  int64_t k_split;       // values of k for each blockIdx.y
  int64_t split_stride;  // matrices of the result between splits
  int64_t columns;       // columns to write: n, and in the workspace also the padding of a row
  bool vectors_a, vectors_b;
  ResultVectors vectors_out;
  [[no_unique_address]] EpilogueOf<C> epilogue;  // used where no other block shares k
};

// Applies the epilogue to a thread's results and stores them, as store_thread_tile() stores plain ones.
template <class T>
__device__ __forceinline__ void store_thread_tile_finished(const Epilogue& e, const Gemm<T>& g,
                                                           ResultVectors vectors,
                                                           const ThreadTile<T, kThread>& thread_tile,
                                                           BlockTile tile, ThreadPlace place) {
  with_stored_type(g.result, [&]<class Out>() {
    FASTGEMM_UNROLL
    for (int i = 0; i < kThread; ++i) {
      const int64_t row = tile.row + ThreadTile<T, kThread>::offset(place.m, i);
      const int64_t column = tile.col + ThreadTile<T, kThread>::offset(place.n, 0);
      const int valid = row < g.m ? inside(g.n, column, kThread) : 0;
      if (valid > 0)
        store_row_finished<Out, kThread>(e, g.result, vectors, row, column, thread_tile.sum[i], valid);
    }
  });
}

// Without a second launch bound nvcc allots 128 registers, within which the sums of int64 spill, and groups.
template <class C, class G>
constexpr int kLeastBlocks = std::is_same_v<typename C::Type, int64_t> || kIsGrouped<G> ? 1 : 0;

template <class C, class G>
__global__ void __launch_bounds__(C::kThreads, kLeastBlocks<C, G>)
    gemm_small_kernel(const __grid_constant__ SmallArguments<C, G> s) {
  using T = typename C::Type;
  using Acc = Accumulator<T>;
  constexpr int kPitch = C::Panel::kPitch, kBK = C::kBK;
  FASTGEMM_DYNAMIC_SHARED(typename C::Buffers, buffers);
  auto [g, tile] = block_work<C::kBlock, C::kBlock>(s.gemm, s.tiles_n);
  g.result.out = static_cast<char*>(g.result.out) +
                 blockIdx.y * s.split_stride * g.result.batch_stride * g.result.out_bytes();
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const ThreadPlace place{warp / C::kWarpsN * 4 + lane / 8, warp % C::kWarpsN * 8 + lane % 8};
  const int64_t k_begin = blockIdx.y * s.k_split, k_end = min(g.k, k_begin + s.k_split);
  const PanelSource<T> from_a{g.a.data, g.a.row_stride, g.a.col_stride, g.m, k_end, s.vectors_a};
  const PanelSource<T> from_b{g.b.data, g.b.col_stride, g.b.row_stride, g.n, k_end, s.vectors_b};

  ThreadTile<T, kThread> sums;
  typename C::Panel a, b;
  a.load(from_a, tile.row, k_begin);
  b.load(from_b, tile.col, k_begin);
  int current = 0;
  for (int64_t k0 = k_begin; k0 < k_end; k0 += kBK, current ^= 1) {
    a.store(buffers->a[current]);
    b.store(buffers->b[current]);
    __syncthreads();  // all have also read the other buffer
    if (!C::kOftenOnePanel || k0 + kBK < k_end) {
      a.load(from_a, tile.row, min(k0 + kBK, k_end));
      b.load(from_b, tile.col, min(k0 + kBK, k_end));
    }
    FASTGEMM_NO_UNROLL
    for (int k1 = 0; k1 < kBK; k1 += kUnrolledK) {
      FASTGEMM_UNROLL
      for (int k = k1; k < k1 + kUnrolledK; ++k) {
        Acc rows[kThread], cols[kThread];
        sums.read(rows, buffers->a[current] + k * kPitch, place.m);
        sums.read(cols, buffers->b[current] + k * kPitch, place.n);
        sums.add_outer_product(rows, cols);
      }
    }
  }
  g.n = s.columns;
  if constexpr (kFuses<C>)
    store_thread_tile_finished(s.epilogue, g, s.vectors_out, sums, tile, place);
  else
    store_thread_tile(g, s.vectors_out, sums, tile, place);
}

template <class C, class G>
void launch_small(const char* name, const G& g, int batch, const Epilogue& epilogue, Context& context) {
  using T = typename G::Element;
  const TileGrid tiles = tile_grid(g, C::kBlock, C::kBlock, batch);
  const OperandVectors vectors = operand_vectors(g);
  const int splits = may_split(g) ? plans::small_splits(int64_t(tiles.grid.x) * batch, g.k, int(sizeof(T)),
                                                        multiprocessors())
                                  : 1;
  launch_splits(g, batch, splits, epilogue, context, [&](const Result<T>& result, int64_t columns) {
    const auto run = [&]<class S>() {
      SmallArguments<S, G> s{.gemm = g,
                             .tiles_n = tiles.tiles_n,
                             .k_split = ceil_div(ceil_div(g.k, splits), C::kBK) * C::kBK,
                             .split_stride = batch,
                             .columns = columns,
                             .vectors_a = vectors.a,
                             .vectors_b = vectors.b,
                             .vectors_out = result_vectors(result),
                             .epilogue = EpilogueOf<S>(epilogue)};
      s.gemm.result = result;
      const dim3 grid(tiles.grid.x, unsigned(splits), tiles.grid.z);
      launch<gemm_small_kernel<S, G>>(name, {grid, dim3(C::kThreads), sizeof(typename C::Buffers)},
                                      context)(s);
    };
    if constexpr (!kIsGrouped<G> && (kIsHalf<T> || std::is_same_v<T, float>)) {
      if (epilogue.asked() && splits == 1) return run.template operator()<Fusing<C>>();
    }
    run.template operator()<C>();
  });
}

}  // namespace

void gemm_small(const GemmProblem& problem, Context& context) {
  const Epilogue epilogue = by_rows(problem).epilogue;
  run_every_batch(problem, context, [&]<class G>(const G& g, int batch) {
    launch_small<Config<typename G::Element, 64>>("small", g, batch, epilogue, context);
  });
}

void gemm_batched(const GemmProblem& problem, Context& context) {
  const Epilogue epilogue = by_rows(problem).epilogue;
  run_gemm<float, int32_t>(problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
    launch_small<Config<T, 32>>("batched", g, batch, epilogue, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
