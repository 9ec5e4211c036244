// Level 6 in fp64, since sm_80: tensor cores at twice the rate of the other units. The loop is that of
// mma_sync, but fragments are read in another way, because ldmatrix moves elements of at most 4 bytes. A lane
// reads element by element, 8 bytes each, straight into the registers that the instruction wants. A 16-byte
// load would bring two neighbours along k or m that belong to different registers, and moving them costs more
// than the load saves. Units are swizzled so that the 16 lanes that are served together access all banks,
// whether k or the other index runs along memory.
//
// Hopper also has instructions of 16 rows; m16n8k8 is the fastest of them. There m8n8k4, the only shape of
// sm_80, reaches half of that rate. The companion `dmma_m8n8k4` shows this for an A with k along its rows.
#include "cuda/device/mma.cuh"
#include "cuda/gemm/parts/mma_pipeline.cuh"
#include "cuda/gemm/parts/residues/fallback.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Reads fragments of 16 positions of the side (m or n) and 8 of k, in the layout of mma's A: element [h + 2 *
// q] is at (lane / 4 + 8 * h, lane % 4 + 4 * q). It is one fragment of A, but two fragments of B, one for
// each h.
template <class Tile>
class FragmentReader {
  static_assert(Tile::kLine == 16, "as many positions in a box as in a fragment");

 public:
  // `first` is the fragment's first position of the side in the tile.
  __device__ __forceinline__ explicit FragmentReader(int first) {
    const int lane = int(threadIdx.x) % 32, side = lane / 4, k = lane % 4;
    const int line = Tile::kAlongK ? side : k, column = Tile::kAlongK ? k : side;
    lane_ = Tile::offset(line, column / 2) + column % 2 * 8 + first * 128;
  }

  // Loads positions [16 i, 16 i + 16) after `first`, in a step of k.
  __device__ __forceinline__ void load(double (&to)[4], const unsigned char* tile, int i, int step) const {
    FASTGEMM_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int h = e % 2, k = 8 * step + e / 2 * 4;
      const int line = 16 * i + (Tile::kAlongK ? 8 * h : k), unit = Tile::kAlongK ? k / 2 : 4 * h;
      to[e] = *reinterpret_cast<const double*>(tile + (lane_ ^ unit * 16) + line * 128);
    }
  }

 private:
  int lane_;
};

// sum (16, 8) += a (16, 8) * b (8, 8), by one instruction of 16 rows or by four of m8n8k4.
template <bool tall>
__device__ __forceinline__ void multiply_tile(double (&sum)[4], const double (&a)[4], double b0, double b1) {
  if constexpr (tall) {
    mma_f64<16, 8>(sum, a, {b0, b1});
  } else {
    auto& rows = reinterpret_cast<double(&)[2][2]>(sum);  // rows 0 to 7 and rows 8 to 15
    mma_f64<8, 4>(rows[0], {a[0]}, {b0});
    mma_f64<8, 4>(rows[1], {a[1]}, {b0});
    mma_f64<8, 4>(rows[0], {a[2]}, {b1});
    mma_f64<8, 4>(rows[1], {a[3]}, {b1});
  }
}

// A warp's tile of C.
template <class C, bool tall, class TileA, class TileB>
struct WarpProduct {
  static constexpr int kSteps = 2, kM = C::WM / 16, kN = C::WN / 8;  // steps per stage, fragments per side
  static constexpr int kFirstLoad = kM - 1, kCopyEvery = 1;          // rows
  static_assert(C::WN % 16 == 0);
  struct Fragments {
    double a[kM][4], b[kN / 2][4];
  };
  FragmentReader<TileA> a;
  FragmentReader<TileB> b;
  double sum[kM][kN][4] = {};

  __device__ __forceinline__ WarpProduct(int row, int column) : a(row), b(column) {}

  // Loads all fragments of a step just before the last row of the step before is multiplied. If they were
  // loaded earlier, they would need more registers than there are.
  __device__ __forceinline__ void load(Fragments& f, const unsigned char* stage, int step, int part) const {
    if (part != kFirstLoad) return;
    FASTGEMM_UNROLL
    for (int j = 0; j < kN / 2; ++j) b.load(f.b[j], stage + TileA::kBytes, j, step);
    FASTGEMM_UNROLL
    for (int i = 0; i < kM; ++i) a.load(f.a[i], stage, i, step);
  }
  __device__ __forceinline__ void multiply(const Fragments& f, int i) {
    FASTGEMM_UNROLL
    for (int step = 0; step < kN; ++step) {
      const int j = i % 2 ? kN - 1 - step : step;  // serpentine order: neighbours share an operand
      multiply_tile<tall>(sum[i][j], f.a[i], f.b[j / 2][j % 2], f.b[j / 2][j % 2 + 2]);
    }
  }
};

template <class C, bool tall, bool a_along_k, bool b_along_k>
struct Kernel {
  using Config = C;
  using TileA = LineTile<double, a_along_k, C::BM, SwizzledLines<4>>;  // (BM, 16)
  using TileB = LineTile<double, b_along_k, C::BN, SwizzledLines<4>>;  // (BN, 16)
  using Warp = WarpProduct<C, tall, TileA, TileB>;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  union Shared {
    unsigned char ring[C::kStages][kStageBytes];
    SlabInRing<double, C, C::kStages * kStageBytes> slabs[C::kWarps];
  };
};

template <class C, bool tall, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_dmma_kernel(const __grid_constant__ TileArguments<double> arguments) {
  multiply_parts<Kernel<C, tall && FASTGEMM_SM90A, a_along_k, b_along_k>>(arguments);
}

template <class C, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_dmma_rest_kernel(const __grid_constant__ TileArguments<double> arguments,
                          const __grid_constant__ residues::FallbackTiles rest) {
  multiply_parts<Kernel<C, FASTGEMM_SM90A, a_along_k, b_along_k>>(arguments, rest);
}

template <class C, bool tall>
void launch_tiles(const Gemm<double>& g, int batch, const plans::DmmaPlan& plan, Context& context) {
  constexpr OperandLayout kLayout = tall ? OperandLayout::any : OperandLayout::a_along_k;
  const auto arguments = tile_arguments<kLayout>(g, batch, C::BM, C::BN, plans::kDmmaDepth, plan.blocks,
                                                 plan.sharing(), context);
  arguments.operands.template with_directions<kLayout>([&]<bool a_along_k, bool b_along_k>() {
    using K = Kernel<C, tall, a_along_k, b_along_k>;
    static_assert(sizeof(typename K::Shared) <= kLeastBlockBytes);
    const LaunchShape shape{dim3(unsigned(arguments.blocks)), dim3(C::kThreads), sizeof(typename K::Shared)};
    launch<gemm_dmma_kernel<C, tall, a_along_k, b_along_k>>(tall ? "dmma" : "dmma_m8n8k4", shape,
                                                            context)(arguments);
  });
}

// Tiles of 128 x 64 have half the work of 128 x 128, so that a C of 1024 x 1024 fills 128 multiprocessors
// instead of 64. For each multiply-add they load 1.5 times as many bytes.
using WideTiles = TileConfig<plans::kDmmaM, plans::kDmmaWide, 64, 32, 3, 1>;
using NarrowTiles = TileConfig<plans::kDmmaM, plans::kDmmaNarrow, 32, 32, 4, 1>;

template <bool tall>
void launch_dmma(const GemmProblem& problem, Context& context) {
  run_gemm<double>(problem, context, [&](const Gemm<double>& g, int batch) {
    const plans::DmmaPlan plan =
        plans::plan_dmma(batch, g.m, g.n, g.k, multiprocessors(), !problem.invariant);
    plan.columns == plans::kDmmaWide ? launch_tiles<WideTiles, tall>(g, batch, plan, context)
                                     : launch_tiles<NarrowTiles, tall>(g, batch, plan, context);
  });
}

}  // namespace

void residues::multiply_fallback(const Gemm<double>& g, const Selection& selection, const Epilogue&,
                                 Context& context) {
  using C = WideTiles;
  static_assert(kTileM % C::BM == 0 && kTileN % C::BN == 0);
  // Stream-K divides all tiles of C among the blocks, also those that are skipped. All blocks that share a
  // tile decide alike whether to skip it, so that none waits for sums that nobody computes.
  const int64_t tiles = ceil_div(g.m, C::BM) * ceil_div(g.n, C::BN), steps = ceil_div(g.k, plans::kDmmaDepth);
  const int blocks = plans::count_blocks(tiles, steps, multiprocessors());
  const auto arguments =
      tile_arguments<OperandLayout::any>(g, 1, C::BM, C::BN, plans::kDmmaDepth, blocks, {2}, context);
  arguments.operands.template with_directions<OperandLayout::any>([&]<bool a_along_k, bool b_along_k>() {
    using K = Kernel<C, true, a_along_k, b_along_k>;
    const LaunchShape shape{dim3(unsigned(blocks)), dim3(C::kThreads), sizeof(typename K::Shared)};
    launch<gemm_dmma_rest_kernel<C, a_along_k, b_along_k>>("dmma_rest", shape, context)(arguments,
                                                                                        {selection});
  });
}

void gemm_dmma(const GemmProblem& problem, Context& context) { launch_dmma<true>(problem, context); }
void gemm_dmma_m8n8k4(const GemmProblem& problem, Context& context) { launch_dmma<false>(problem, context); }

}  // namespace fastgemm::FASTGEMM_TARGET
