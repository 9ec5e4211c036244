// Level 6 for batches of small matrices, where a product is over before a pipeline of it has filled. What
// changes from the kernel for small products of level 5: a block has one tile of one matrix, 64 x 64 or 32 x
// 32, and up to 128 of k are on the way before the first element is used. Tiles arrive as they lie in global
// memory (parts/raw_tile.cuh); a thread takes 4 x 4 elements of an operand at a time, along whichever
// direction they run, and adds 4 x 4 sums by fused multiply-adds. Tensor cores would gain little (256
// products of 64 x 64 x 64 are 2.2 us of multiply-adds at full rate), and this way nothing is left to repair.
// Sums are made 32 values of k at a time, which keeps the error of long ones below that of one chain.
#include "cuda/gemm/parts/raw_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThread = 4, kStages = 4;

template <int block>
struct Shape {
  static constexpr int kBlock = block, kAcross = block / kThread, kThreads = kAcross * kAcross;
  static constexpr int kLanesM = 4, kLanesN = 8, kWarpsN = kAcross / kLanesN;
  static constexpr int kSlabPitch = block + 4;
  static constexpr int kPitch = kLinePitch<block, 8>, kWords = kTileK * kPitch;
};

template <class T, class S>
struct Stage {
  static_assert(S::kBlock * S::kSlabPitch <= 2 * S::kWords);  // C takes no more on its way
  alignas(128) T a[S::kWords];                                // (kBlock, kTileK)
  alignas(128) T b[S::kWords];                                // (kBlock, kTileK)
};

template <class T>
struct BatchedArguments {
  Gemm<T> gemm;
  bool vectors_a, vectors_b;
  ResultVectors vectors_out;
  unsigned tiles_n;
};

// Position i (0 to 3) of thread `place` along a side: neighbours where the operand runs along that side, and
// a thread tile apart where it runs along k, so that threads side by side read lines side by side.
template <class S>
__device__ __forceinline__ int position(bool along_k, int place, int i) {
  return along_k ? place + S::kAcross * i : kThread * place + i;
}

// The elements of four values of k, from k on: to[k][position].
template <class S, class T>
__device__ __forceinline__ void load_four(T (&to)[4][kThread], const T* tile, bool along_k, int place,
                                          int k) {
  using Four = Vector<T, 4>;
  if (along_k) {
    const int at = place_along_k(place, k);
    FASTGEMM_UNROLL
    for (int i = 0; i < kThread; ++i) {
      const Four four = load_vector<Four>(tile + at + S::kAcross * i * kTileK);
      FASTGEMM_UNROLL
      for (int e = 0; e < 4; ++e) to[e][i] = four[e];
    }
  } else {
    FASTGEMM_UNROLL
    for (int e = 0; e < 4; ++e) {
      const Four four = load_vector<Four>(tile + (k + e) * S::kPitch + kThread * place);
      FASTGEMM_UNROLL
      for (int i = 0; i < kThread; ++i) to[e][i] = four[i];
    }
  }
}

// part (4, 4 elements of a thread) += the product of a stage: rows of place m, columns of place n.
template <class S, class T>
__device__ __forceinline__ void multiply_stage(Accumulator<T> (&part)[kThread][kThread],
                                               const Stage<T, S>& stage, bool a_along_k, bool b_along_k,
                                               int m, int n) {
  using Acc = Accumulator<T>;
  // Not unrolled: a small product meets a cold instruction cache.
  FASTGEMM_NO_UNROLL
  for (int k = 0; k < kTileK; k += 4) {
    T a[4][kThread], b[4][kThread];
    load_four<S>(a, stage.a, a_along_k, m, k);
    load_four<S>(b, stage.b, b_along_k, n, k);
    FASTGEMM_UNROLL
    for (int e = 0; e < 4 * kThread * kThread; ++e) {
      const int i = e / kThread % kThread, j = e % kThread;
      part[i][j] = multiply_add(Acc(a[e / 16][i]), Acc(b[e / 16][j]), part[i][j]);
    }
  }
}

// A thread's sums, to (kBlock, kSlabPitch).
template <class S, class Acc>
__device__ __forceinline__ void put(Acc* slab, const Acc (&sum)[kThread][kThread], bool a_along_k,
                                    bool b_along_k, int m, int n) {
  FASTGEMM_UNROLL
  for (int i = 0; i < kThread; ++i) {
    Acc* const row = slab + position<S>(a_along_k, m, i) * S::kSlabPitch;
    if (b_along_k) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kThread; ++j) row[position<S>(true, n, j)] = sum[i][j];
    } else {
      store_vector(row + position<S>(false, n, 0), load_vector<Vector<Acc, kThread>>(sum[i]));
    }
  }
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads)
    gemm_batched_kernel(const __grid_constant__ BatchedArguments<T> arguments) {
  using Acc = Accumulator<T>;
  using OneStage = Stage<T, S>;
  FASTGEMM_DYNAMIC_SHARED(OneStage, ring);
  const Gemm<T> g = arguments.gemm.at_batch(blockIdx.z);
  const int64_t row0 = int64_t(blockIdx.x / arguments.tiles_n) * S::kBlock;
  const int64_t column0 = int64_t(blockIdx.x % arguments.tiles_n) * S::kBlock;
  const PanelSource<T> from_a{g.a.data, g.a.row_stride, g.a.col_stride, g.m, g.k, arguments.vectors_a};
  const PanelSource<T> from_b{g.b.data, g.b.col_stride, g.b.row_stride, g.n, g.k, arguments.vectors_b};
  const bool a_along_k = from_a.k_stride == 1, b_along_k = from_b.k_stride == 1;
  TileCopy<T, S::kBlock, S::kPitch, S::kThreads> copy_a(from_a, row0, 0), copy_b(from_b, column0, 0);
  const int steps = int((g.k + kTileK - 1) / kTileK);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int m = warp / S::kWarpsN * S::kLanesM + lane / S::kLanesN;
  const int n = warp % S::kWarpsN * S::kLanesN + lane % S::kLanesN;

  alignas(16) Acc sum[kThread][kThread] = {};
  FASTGEMM_NO_UNROLL
  for (int step = 1 - kStages; step < steps; ++step) {
    const int slot = (step + kStages) % kStages, free_slot = (step + kStages - 1) % kStages;
    if (step >= 0) {
      wait_async_copies<kStages - 2>();
      __syncthreads();  // this stage is there for all, and the one before it has been read by all
    }
    copy_a.copy(ring[free_slot].a);
    copy_b.copy(ring[free_slot].b);
    commit_async_copies();
    if (step < 0) continue;
    Acc part[kThread][kThread] = {};
    multiply_stage<S, T>(part, ring[slot], a_along_k, b_along_k, m, n);
    FASTGEMM_UNROLL
    for (int e = 0; e < kThread * kThread; ++e)
      sum[e / kThread][e % kThread] += part[e / kThread][e % kThread];
  }
  // Through shared memory, so that C is written in whole lines, by little code.
  __syncthreads();
  Acc* const slab = reinterpret_cast<Acc*>(ring);
  put<S>(slab, sum, a_along_k, b_along_k, m, n);
  __syncthreads();
  constexpr int kUnits = S::kBlock / 4;
  FASTGEMM_NO_UNROLL
  for (int i = int(threadIdx.x); i < S::kBlock * kUnits; i += S::kThreads) {
    const int64_t row = row0 + i / kUnits, column = column0 + i % kUnits * 4;
    const int valid = row < g.m ? inside(g.n, column, 4) : 0;
    const auto sums = load_vector<Vector<Acc, 4>>(slab + i / kUnits * S::kSlabPitch + i % kUnits * 4);
    if (valid > 0) store_row_as<T, 4>(g.result, arguments.vectors_out, row, column, sums.v, valid);
  }
}

template <class S, class T>
void launch_batched(const Gemm<T>& g, int batch, Context& context) {
  const TileGrid tiles = tile_grid(g.m, g.n, S::kBlock, S::kBlock, batch);
  constexpr size_t kStageBytes = sizeof(Stage<T, S>),
                   kUnasked = 48 << 10;  // what a kernel has without asking
  size_t bytes = kStageBytes * std::clamp<int64_t>(ceil_div(g.k, kTileK), 1, kStages);
  if (bytes > kUnasked) bytes = kStageBytes * kStages;
  const LaunchShape shape{tiles.grid, dim3(S::kThreads), bytes};
  launch<gemm_batched_kernel<T, S>>("batched", shape, context)(BatchedArguments<T>{
      g, takes_vectors(g.a), takes_vectors(g.b), result_vectors(g.result), tiles.tiles_n});
}

}  // namespace

void gemm_batched(const GemmProblem& problem, Context& context) {
  run_gemm<float, int32_t>(problem, context, [&](const auto& g, int batch) {
    std::max(g.m, g.n) <= 32 ? launch_batched<Shape<32>>(g, batch, context)
                             : launch_batched<Shape<64>>(g, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
