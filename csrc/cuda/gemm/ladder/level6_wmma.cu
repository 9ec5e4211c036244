//   make sim KERNEL=wmma
//
// Level 6 since sm_80, first step: tensor cores through CUDA's own interface. What changes from level 5: one
// instruction of a warp multiplies 16 x 16 x 16 elements (tf32: 16 x 16 x 8, float64: 8 x 8 x 4). Their
// layout in the fragments need not be known, and operands stay as narrow as in memory.
//
// The block tile is 128 x 128: four warps of 64 x 64, so that a fragment from shared memory is used four
// times. Two blocks fit on a multiprocessor, and one works while the other waits. Lines of 128 bytes are
// padded by 16 bytes. Otherwise 8 lines of one column would be in the same banks. (int8: LinesByUnits in
// parts/line_tile.cuh.) cp.async fills two of three stages while the third is multiplied, and fragments are
// loaded one step of k ahead; mma_sync has the same loop. If a block cannot have 108 KB, there are two
// stages. float64 has half tiles, because its sums take twice the registers.
#include "cuda/device/wmma.cuh"
#include "cuda/gemm/parts/line_tile.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"
#include "cuda/gemm/parts/stores/warp_slab.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kWarpsM = 2, kWarps = 4, kThreads = 32 * kWarps;

// A warp's tile of C.
template <class E, class A, class B, class TileA, class TileB, int SIDE>
struct WarpProduct {
  using Shape = WmmaShape<E>;
  using Element = typename Shape::Element;
  static constexpr int kSteps = TileA::kK / Shape::kK;                // of a stage
  static constexpr int kM = SIDE / Shape::kM, kN = SIDE / Shape::kN;  // fragments
  static constexpr int kFirstLoad = 0, kCopyEvery = 2;                // rows
  struct Fragments {
    A a[kM];
    B b[kN];
  };
  int row, column;  // in the block's tile
  WmmaC<E> sum[kM][kN];

  __device__ __forceinline__ WarpProduct(int row, int column) : row(row), column(column) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kM; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kN; ++j) wmma_fill(sum[i][j], 0);
    }
  }

  // Loads part `part` of kM of a step's fragments. The fragments of B, which all rows need, are loaded in the
  // first half of the parts.
  __device__ __forceinline__ void load(Fragments& f, const unsigned char* stage, int step, int part) const {
    FASTGEMM_UNROLL
    for (int j = 2 * part; j < 2 * part + 2 && j < kN; ++j)
      load_fragment<TileB>(f.b[j], stage + TileA::kBytes, column + j * Shape::kN, step * Shape::kK);
    load_fragment<TileA>(f.a[part], stage, row + part * Shape::kM, step * Shape::kK);
  }
  __device__ __forceinline__ void multiply(const Fragments& f, int i) {
    FASTGEMM_UNROLL
    for (int j = 0; j < kN; ++j) wmma_multiply(sum[i][j], f.a[i], f.b[j]);
  }

 private:
  // The fragment at (side, k) of a tile.
  template <class Tile, class Fragment>
  __device__ __forceinline__ static void load_fragment(Fragment& to, const unsigned char* tile, int side,
                                                       int k) {
    const int line = Tile::kAlongK ? side : side / Tile::kLine * Tile::kK + k;
    const int byte = (Tile::kAlongK ? k : side % Tile::kLine) * int(sizeof(Element));
    wmma_load_shared(to, reinterpret_cast<const Element*>(tile + Tile::offset(line, byte / 16)),
                     Tile::Order::kPitch / int(sizeof(Element)));
  }
};

template <int STAGES, class T, bool a_along_k, bool b_along_k>
struct Kernel {
  using E = TensorCoreElement<T>;
  using LineOrder = std::conditional_t<sizeof(T) == 1, LinesByUnits, PaddedLines>;
  static constexpr int kWarpTile = sizeof(T) == 8 ? 32 : 64, kBlockTile = 2 * kWarpTile;
  using TileA = LineTile<T, a_along_k, kBlockTile, LineOrder>;  // (kBlockTile, 128 bytes)
  using TileB = LineTile<T, b_along_k, kBlockTile, LineOrder>;  // (kBlockTile, 128 bytes)
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  using A = WmmaA<E, a_along_k ? Order::row_major : Order::column_major>;
  using B = WmmaB<E, b_along_k ? Order::column_major : Order::row_major>;
  using Warp = WarpProduct<E, A, B, TileA, TileB, kWarpTile>;
  using Slab = WarpSlab<Accumulator<E>, kWarpTile, kWarpTile>;
  union Shared {
    unsigned char ring[STAGES][kStageBytes];
    Slab slabs[kWarps];
  };
};

template <class T>
struct Arguments {
  Gemm<T> gemm;
  RowsOperands<T> operands;
  ResultVectors vectors;
  int tiles_m, tiles_n, steps;  // stages of a tile
};

template <int STAGES, class T, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(kThreads, 2) gemm_wmma_kernel(const __grid_constant__ Arguments<T> g) {
  using K = Kernel<STAGES, T, a_along_k, b_along_k>;
  if (!kMayHaveStages<STAGES, K::kStageBytes>) return;
  using Shape = typename K::Warp::Shape;
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  const TilePlace<8> place(int(blockIdx.x), g.tiles_m, g.tiles_n);
  const int row0 = place.row * K::kBlockTile, column0 = place.column * K::kBlockTile;
  const int index = warp_index(), row = index % kWarpsM * K::kWarpTile,
            column = index / kWarpsM * K::kWarpTile;
  StageCopy copies(TileCopy<typename K::TileA, T, kThreads>(g.operands.a, place.batch, row0),
                   TileCopy<typename K::TileB, T, kThreads>(g.operands.b, place.batch, column0), g.steps + 1);
  typename K::Warp warp(row, column);
  multiply_stages<STAGES, K::kStageBytes>(shared->ring[0], g.steps, copies, warp);
  typename K::Slab& slab = shared->slabs[index];
  FASTGEMM_UNROLL
  for (int i = 0; i < K::Warp::kM * K::Warp::kN; ++i) {
    const int m = i / K::Warp::kN, n = i % K::Warp::kN;
    wmma_store<Order::row_major>(&slab.sums[m * Shape::kM * K::Slab::kPitch + n * Shape::kN], warp.sum[m][n],
                                 K::Slab::kPitch);
  }
  __syncwarp();
  slab.store(g.gemm.at_batch(place.batch), g.vectors, int64_t(row0) + row, int64_t(column0) + column);
}

template <class T>
void launch_wmma(const Gemm<T>& g, int batch, Context& context) {
  constexpr OperandLayout kLayout = sizeof(T) == 2 ? OperandLayout::a_along_k : OperandLayout::along_k;
  constexpr int kTile = Kernel<3, T, true, true>::kBlockTile, kK = 128 / int(sizeof(T));
  const RowsOperands<T> operands = rows_operands<kLayout, T>(g, batch, context);
  const int tiles_m = int(ceil_div(g.m, kTile)), tiles_n = int(ceil_div(g.n, kTile));
  const dim3 blocks(tile_grid(g.m, g.n, kTile, kTile, batch).grid.x * unsigned(batch));
  operands.template with_directions<kLayout>([&]<bool a_along_k, bool b_along_k>() {
    with_stages<Kernel<3, T, a_along_k, b_along_k>::kStageBytes>([&]<int STAGES>() {
      constexpr size_t kBytes = sizeof(typename Kernel<STAGES, T, a_along_k, b_along_k>::Shared);
      launch<gemm_wmma_kernel<STAGES, T, a_along_k, b_along_k>>(
          "wmma", {blocks, dim3(kThreads), kBytes},
          context)({g, operands, result_vectors(g.result), tiles_m, tiles_n, int(ceil_div(g.k, kK))});
    });
  });
}

}  // namespace

void gemm_wmma(const GemmProblem& problem, Context& context) {
  run_gemm<double, float, Half, BFloat16, int8_t>(
      problem, context, [&](const auto& g, int batch) { launch_wmma(g, batch, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
