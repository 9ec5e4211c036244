// Level 6 since sm_80, second step: tensor cores by the warp, with control over every register.
// What changes from wmma:
//   - shared tiles are swizzled instead of padded: the units of 16 bytes in a line of 128 change places by
//     the line's number, so that ldmatrix reads 8 lines of one unit, and cp.async writes the units of one
//     line, without bank conflicts and without waste. An operand that runs along m or n is transposed by
//     ldmatrix on its way;
//   - a lane has one address for all fragments of a step, where wmma computes one for each: 245 instructions
//     a stage instead of 315, of which 128 multiply;
//   - blocks of 128 x 256 need a quarter less of the L2 cache's bandwidth;
//   - they are persistent, and share the last tiles evenly (level5_stream_k.cuh).
// mma.sync reaches two thirds of what wgmma does on Hopper: m16n8k16 takes 6 cycles there, and the tensor
// cores work on it four fifths of the time (bf16, 8192).
#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/swizzle.cuh"
#include "cuda/gemm/level5_choice.cuh"
#include "cuda/gemm/level6_tile.cuh"
#include "cuda/gemm/levels.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

struct Swizzled {
  static constexpr int kPitch = 128, kPeriod = 8;
  template <int SIDE>
  static constexpr int bytes() {
    return SIDE * kPitch;
  }
  template <int SIDE>
  __device__ __forceinline__ static constexpr int offset(int line, int unit) {
    return line * kPitch + (unit ^ line % 8) * 16;
  }
};

enum class Side { a, b };

// Where a lane's addresses for ldmatrix lie in a tile. One load brings four matrices of 8 x 8: 16 positions
// of the side, 32 bytes of k. Their order is that of the registers: for A along the side first, for B, where
// they are two fragments, along k.
template <Side side, class Tile>
class FragmentReader {
 public:
  // `first` position of the side in the tile.
  __device__ __forceinline__ explicit FragmentReader(int first) {
    const int lane = int(threadIdx.x) % 32, low = lane / 8 % 2, high = lane / 16;
    const int side8 = side == Side::a ? low : high, k16 = side == Side::a ? high : low;
    const int line = lane % 8 + 8 * (Tile::kAlongK ? side8 : k16);
    const int unit = (Tile::kAlongK ? k16 : side8) + (Tile::kAlongK ? 0 : first % Tile::kLine / 8);
    const int lines = Tile::kAlongK ? first : first / Tile::kLine * Tile::kK;
    lane_ = Tile::offset(line, unit) + lines * 128;
  }

  // Positions [16 i, 16 i + 16) after the first one, in a step of k.
  __device__ __forceinline__ void load(uint32_t (&to)[4], const unsigned char* tile, int i, int step) const {
    constexpr int kPerBox = Tile::kLine / 16;
    const int line = Tile::kAlongK ? 16 * i : i / kPerBox * Tile::kK + 16 * step;
    const int unit = Tile::kAlongK ? 2 * step : 2 * (i % kPerBox);
    load_matrices<4, !Tile::kAlongK>(to, tile + (lane_ ^ unit * 16) + line * 128);
    if constexpr (Tile::kTf32) {  // the tensor cores would cut off what they have no bits for
      FASTGEMM_UNROLL
      for (uint32_t& x : to) x = to_tf32(__uint_as_float(x)).bits;
    }
  }

 private:
  int lane_;
};

// A warp's tile of C.
template <class C, class E, class TileA, class TileB>
struct WarpProduct {
  static constexpr int kSteps = 4, kM = C::WM / 16, kN = C::WN / 8;  // steps of a stage, fragments
  static constexpr int kFirstLoad = 0, kCopyEvery = kM;              // rows
  static_assert(C::WN % 16 == 0);
  struct Fragments {
    uint32_t a[kM][4], b[kN / 2][4];
  };
  FragmentReader<Side::a, TileA> a;
  FragmentReader<Side::b, TileB> b;
  Accumulator<E> sum[kM][kN][4] = {};

  __device__ __forceinline__ WarpProduct(int row, int column) : a(row), b(column) {}

  // A step's fragments, in kM parts: those of B, which all rows need, in the first half of them.
  __device__ __forceinline__ void load(Fragments& f, const unsigned char* stage, int step, int part) const {
    constexpr int kAtOnce = (kN + kM - 1) / kM;
    FASTGEMM_UNROLL
    for (int j = part * kAtOnce; j < (part + 1) * kAtOnce && j < kN / 2; ++j)
      b.load(f.b[j], stage + TileA::kBytes, j, step);
    a.load(f.a[part], stage, part, step);
  }
  __device__ __forceinline__ void multiply(const Fragments& f, int i) {
    FASTGEMM_UNROLL
    for (int step = 0; step < kN; ++step) {
      const int j = i % 2 ? kN - 1 - step : step;  // there and back: one operand is the last one's
      mma<E>(sum[i][j], f.a[i], f.b[j / 2][j % 2 * 2], f.b[j / 2][j % 2 * 2 + 1]);
    }
  }
};

template <class C, class T, bool a_along_k, bool b_along_k>
struct Kernel {
  using Config = C;
  using TileA = LineTile<T, a_along_k, C::BM, Swizzled>;  // (BM, 128 bytes)
  using TileB = LineTile<T, b_along_k, C::BN, Swizzled>;  // (BN, 128 bytes)
  using Warp = WarpProduct<C, TensorCoreElement<T>, TileA, TileB>;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  union Shared {
    unsigned char ring[C::kStages][kStageBytes];
    WarpSlab<Accumulator<T>, C::WM, C::WN> slabs[C::kWarps];
  };
};

template <class C, class T, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_mma_sync_kernel(const __grid_constant__ TileArguments<T> arguments) {
  multiply_parts<Kernel<C, T, a_along_k, b_along_k>>(arguments);
}

template <class C, class T>
void launch_mma_sync(const Gemm<T>& g, int batch, Context& context) {
  constexpr Takes kTakes = sizeof(T) == 2 ? Takes::any : Takes::along_k;
  const auto arguments = tile_arguments<kTakes>(g, batch, C::BM, C::BN, 128 / int(sizeof(T)),
                                                C::kBlocks * multiprocessors(), context);
  arguments.operands.template with_directions<kTakes>([&]<bool a_along_k, bool b_along_k>() {
    using K = Kernel<C, T, a_along_k, b_along_k>;
    static_assert(sizeof(typename K::Shared) <= kLargeBlockBytes);
    const LaunchShape shape{dim3(unsigned(arguments.blocks)), dim3(C::kThreads), sizeof(typename K::Shared)};
    launch<gemm_mma_sync_kernel<C, T, a_along_k, b_along_k>>("mma_sync", shape, context)(arguments);
  });
}

using Tiles = TileConfig<128, 256, 64, 64, 3, 1>;

}  // namespace

void gemm_mma_sync(const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (sizeof(T) <= 4 && !std::is_same_v<T, int32_t>) {
      if (!fits_tiles(g)) return gemm_small(g, batch, context);
      launch_mma_sync<Tiles>(g, batch, context);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
