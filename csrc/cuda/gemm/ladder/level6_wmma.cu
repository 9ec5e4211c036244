//   make sim KERNEL=wmma ARGS='--dtype bf16'
//
// Level 6 since sm_80, first step: tensor cores through CUDA's own interface. What changes from level 5: a
// warp multiplies 16 x 16 x 16 elements an instruction out of fragments whose inside it need not know, and
// operands stay as narrow as they are in memory. Block tile 128 x 128, four warps of 64 x 64, which use a
// fragment four times; fp64 64 x 64 and 32 x 32. Two of three stages are on their way by cp.async, and
// fragments are loaded one step of k ahead.
#include "cuda/device/async_copy.cuh"
#include "cuda/device/wmma.cuh"
#include "cuda/gemm/parts/operand_rows.cuh"
#include "cuda/gemm/parts/tile_order.cuh"
#include "cuda/gemm/parts/warp_slab.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kStages = 3, kWarpsM = 2, kWarps = 4, kThreads = 32 * kWarps;
constexpr int kLines = kThreads / 8;  // that the threads copy at a time, 16 bytes each

// Tile (SIDE, kK) of an operand in lines of 128 bytes: line s holds the k of one position of the side, or
// line k of a box of kK lines 128 bytes of the side. Lines are padded by 16 bytes, or 8 of a column would
// share banks. int8 fragments begin at multiples of 32 bytes: the lines' first 16 bytes come first.
template <class T, bool along_k, int SIDE>
struct PaddedTile {
  static constexpr int kK = 128 / int(sizeof(T)), kUnit = kPer16Bytes<T>;
  static constexpr int kPitch = sizeof(T) == 1 ? 16 : 144, kNextUnit = sizeof(T) == 1 ? SIDE * 16 + 32 : 16;
  static constexpr int kBytes = sizeof(T) == 1 ? 8 * kNextUnit : SIDE * kPitch;

  template <class Fragment>  // the one whose first element is (side, k)
  __device__ __forceinline__ static void load(Fragment& to, const unsigned char* tile, int side, int k) {
    const int line = along_k ? side : side / kK * kK + k, element = along_k ? k : side % kK;
    tile += line * kPitch + element / kUnit * kNextUnit;
    wmma_load_shared(to, reinterpret_cast<const T*>(tile), kPitch / int(sizeof(T)));
  }
  // The block asks for copy i, 16 lines, of a stage of the tile at side0, zeros outside the operand.
  __device__ __forceinline__ static void copy(unsigned char* tile, const RowsOperand<T>& from, int batch,
                                              int side0, int step, int i) {
    if (i < 0 || i >= SIDE / kLines) return;
    const int lane = fresh_lane();  // so that no address is kept in registers from copy to copy
    const int line = kLines * i + int(threadIdx.x) / 32 * 4 + lane / 8, unit = lane % 8;
    const int row = along_k ? side0 + line : step * kK + line % kK, rows = along_k ? from.side : from.k;
    const int column = (along_k ? step * kK : side0 + line / kK * kK) + unit * kUnit;
    const int inside = row < rows ? max(0, min((along_k ? from.k : from.side) - column, kUnit)) : 0;
    const T* const data =
        from.data + batch * from.batch_stride + (inside ? row * from.row_stride + column : 0);
    copy_async<16>(tile + line * kPitch + unit * kNextUnit, data, inside * int(sizeof(T)));
  }
};

template <class T, bool a_along_k, bool b_along_k>
struct Kernel {
  using E = TensorCoreElement<T>;
  using Step = WmmaShape<E>;  // of a product
  using A = WmmaA<E, a_along_k ? Order::row_major : Order::column_major>;
  using B = WmmaB<E, b_along_k ? Order::column_major : Order::row_major>;
  static constexpr int kFragments = 4, kWarpTile = kFragments * Step::kM, kBlockTile = kWarpsM * kWarpTile;
  using TileA = PaddedTile<T, a_along_k, kBlockTile>;
  using TileB = PaddedTile<T, b_along_k, kBlockTile>;
  union Shared {
    unsigned char ring[kStages][TileA::kBytes + TileB::kBytes];
    WarpSlab<Accumulator<E>, kWarpTile, kWarpTile> slabs[kWarps];  // once the ring is done with
  };
};

template <class T>
struct Arguments {
  Gemm<T> gemm;
  RowsOperands<T> operands;
  ResultVectors vectors;
  int tiles_m, tiles_n, steps;  // stages of a tile
};

template <class T, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(kThreads, 2) gemm_wmma_kernel(const __grid_constant__ Arguments<T> g) {
  using K = Kernel<T, a_along_k, b_along_k>;
  constexpr int kF = K::kFragments, kM = K::Step::kM, kSteps = K::TileA::kK / K::Step::kK;  // of a stage
  constexpr int kCopies = K::kBlockTile / kLines;
  static_assert(2 * kCopies <= kSteps * kF && sizeof(typename K::Shared) <= 144 << 10);
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  const TilePlace<8> place(int(blockIdx.x), g.tiles_m, g.tiles_n);
  const int row0 = place.row * K::kBlockTile, column0 = place.column * K::kBlockTile;
  const auto copy = [&](int step, int i) {  // lines of A, then of B
    unsigned char* const stage = shared->ring[step % kStages];
    if (step >= g.steps) return;
    K::TileA::copy(stage, g.operands.a, place.batch, row0, step, i);
    K::TileB::copy(stage + K::TileA::kBytes, g.operands.b, place.batch, column0, step, i - kCopies);
  };
  const int warp = warp_index();
  const int row = warp % kWarpsM * K::kWarpTile, column = warp / kWarpsM * K::kWarpTile;
  typename K::A a[2][kF];  // of this step of k and of the next
  typename K::B b[2][kF];
  WmmaC<typename K::E> sum[kF][kF];  // (kWarpTile, kWarpTile)
  FASTGEMM_UNROLL
  for (int i = 0; i < kF * kF; ++i) wmma_fill(sum[i / kF][i % kF], 0);
  for (int step = 0; step < kStages - 1; ++step) {
    for (int i = 0; i < 2 * kCopies; ++i) copy(step, i);
    commit_async_copies();
  }
  FASTGEMM_NO_UNROLL
  for (int step = 0; step < g.steps; ++step) {
    wait_async_copies<kStages - 2>();
    __syncthreads();  // this stage is there for all, and the one before it has been read by all
    const unsigned char* const stage = shared->ring[step % kStages];
    const auto load = [&](int k, int i) {
      K::TileA::load(a[k % 2][i], stage, row + i * kM, k * K::Step::kK);
      K::TileB::load(b[k % 2][i], stage + K::TileA::kBytes, column + i * kM, k * K::Step::kK);
    };
    FASTGEMM_UNROLL
    for (int i = 0; i < kF; ++i) load(0, i);
    FASTGEMM_UNROLL
    for (int i = 0; i < kSteps * kF; ++i) {  // a row of products, then the next one, then the next step of k
      copy(step + kStages - 1, i);           // all at once would keep loads waiting behind them
      if (i / kF + 1 < kSteps) load(i / kF + 1, i % kF);
      FASTGEMM_UNROLL
      for (int j = 0; j < kF; ++j) wmma_multiply(sum[i % kF][j], a[i / kF % 2][i % kF], b[i / kF % 2][j]);
    }
    commit_async_copies();  // an empty group too, so that the count of groups is the count of steps
  }
  wait_async_copies<0>();
  __syncthreads();  // the ring is free
  auto& slab = shared->slabs[warp];
  FASTGEMM_UNROLL
  for (int i = 0; i < kF * kF; ++i)
    wmma_store<Order::row_major>(&slab.sums[i / kF * kM * slab.kPitch + i % kF * kM], sum[i / kF][i % kF],
                                 slab.kPitch);
  __syncwarp();
  slab.store(g.gemm.at_batch(place.batch), g.vectors, row0 + row, column0 + column);
}

}  // namespace

void gemm_wmma(const GemmProblem& problem, Context& context) {
  run_gemm<double, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
        constexpr Takes kTakes = sizeof(T) == 2 ? Takes::any : Takes::along_k;
        constexpr int kTile = Kernel<T, true, true>::kBlockTile, kK = 128 / int(sizeof(T));
        const RowsOperands<T> operands = rows_operands<kTakes>(g, batch, context);
        const int tiles_m = int(ceil_div(g.m, kTile)), tiles_n = int(ceil_div(g.n, kTile));
        const dim3 blocks(tile_grid(g.m, g.n, kTile, kTile, batch).grid.x * unsigned(batch));
        operands.template with_directions<kTakes>([&]<bool a_along_k, bool b_along_k>() {
          constexpr size_t kBytes = sizeof(typename Kernel<T, a_along_k, b_along_k>::Shared);
          launch<gemm_wmma_kernel<T, a_along_k, b_along_k>>(
              "wmma", {blocks, dim3(kThreads), kBytes},
              context)({g, operands, result_vectors(g.result), tiles_m, tiles_n, int(ceil_div(g.k, kK))});
        });
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
