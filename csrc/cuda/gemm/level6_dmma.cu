// Level 6 in fp64, on any GPU since sm_80: tensor cores at twice the rate of the other units. The loop is
// that of mma_sync; what differs is how fragments are read, because ldmatrix moves 4 bytes at most:
//   - the order of k inside a product is free, and so is that of the rows and columns of C inside a tile.
//   Here
//     neighbours in memory, of either direction, become the elements of one lane: 16-byte loads for all four
//     layouts, and a lane's sums are four neighbours of a row of C;
//   - units are swizzled so that the 8 lanes that are served together read 8 different ones, whichever
//     direction the operand runs along.
// Hopper has tiles of 16 rows; m8n8k4, the one shape of sm_80, runs there at the rate of `dmma_m8n8k4`.
#include "cuda/device/mma.cuh"
#include "cuda/gemm/level5_choice.cuh"
#include "cuda/gemm/level6_tile.cuh"
#include "cuda/gemm/levels.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Block tile, warp tile, stages of 16 of k, blocks on a multiprocessor.
template <int BM_, int BN_, int WM_, int WN_, int STAGES_, int BLOCKS_, int BUFFERS_>
struct Config {
  static constexpr int kBuffers = BUFFERS_;
  static constexpr int BM = BM_, BN = BN_, WM = WM_, WN = WN_, kStages = STAGES_, kBlocks = BLOCKS_;
  static constexpr int kWarpsM = BM / WM, kWarps = kWarpsM * (BN / WN), kThreads = 32 * kWarps;
};

struct Swizzled {
  static constexpr int kPitch = 128, kPeriod = 8;
  template <int SIDE>
  static constexpr int bytes() {
    return SIDE * kPitch;
  }
  template <int SIDE>
  __device__ __forceinline__ static constexpr int offset(int line, int unit) {
    return line * kPitch + (unit ^ ((line & 2) << 1 | (line & 4) >> 1)) * 16;
  }
};

// 16 positions of the side, 8 of k, of which a lane holds 2 x 2: element [2 * q + h] is at
// (2 * (lane / 4) + h, 2 * (lane % 4) + q). To the instructions, who have rows (or columns) lane / 4 and
// lane / 4 + 8 and k of lane % 4 and lane % 4 + 4, this is a permutation of both.
template <class Tile>
class PairReader {
 public:
  __device__ __forceinline__ explicit PairReader(int first) {
    const int lane = int(threadIdx.x) % 32, side = lane / 4, k = lane % 4;
    lane_ = Tile::kAlongK ? Tile::offset(2 * side, k) : Tile::offset(2 * k, side);
    next_ = (Tile::kAlongK ? Tile::offset(2 * side + 1, k) : Tile::offset(2 * k + 1, side)) - lane_;
    lane_ += first * 128;  // as many lines in both directions: a box has 16
    static_assert(Tile::kLine == 16 && Tile::kK == 16);
  }

  __device__ __forceinline__ void load(double* to, const unsigned char* tile, int i, int step) const {
    const unsigned char* p = Tile::kAlongK ? tile + (lane_ ^ step * 64) : tile + lane_ + step * 8 * 128;
    const auto one = load_pair(p + 16 * i * 128), two = load_pair(p + 16 * i * 128 + next_);
    to[0] = one[0], to[3] = two[1];
    to[1] = Tile::kAlongK ? two[0] : one[1];
    to[2] = Tile::kAlongK ? one[1] : two[0];
  }

 private:
  __device__ __forceinline__ static Vector<double, 2> load_pair(const unsigned char* p) {
    return load_vector<Vector<double, 2>>(reinterpret_cast<const double*>(p));
  }
  int lane_, next_;
};

// sum (16, 8) += a (16, 8) * b (8, 8), by instructions of ROWS rows and K of k.
template <int ROWS, int K, int A>
__device__ __forceinline__ void multiply_tile(double (&sum)[4], const double (&a)[A], const double* b) {
  const double b0 = b[0], b1 = b[2];
  if constexpr (K == 16) {
    mma_f64<16, 16>(sum, a, {b0, b1, b[4], b[6]});
  } else if constexpr (K == 8) {
    mma_f64<16, 8>(sum, a, {b0, b1});
  } else if constexpr (ROWS == 16) {
    mma_f64<16, 4>(sum, {a[0], a[1]}, {b0});
    mma_f64<16, 4>(sum, {a[2], a[3]}, {b1});
  } else {
    double(&top)[2] = reinterpret_cast<double(&)[2]>(sum[0]);
    double(&bottom)[2] = reinterpret_cast<double(&)[2]>(sum[2]);
    mma_f64<8, 4>(top, {a[0]}, {b0});
    mma_f64<8, 4>(bottom, {a[1]}, {b0});
    mma_f64<8, 4>(top, {a[2]}, {b1});
    mma_f64<8, 4>(bottom, {a[3]}, {b1});
  }
}

// A warp's tile of C, in blocks of 16 x 16: one fragment of A, two of B.
template <class C, int ROWS, int K, class TileA, class TileB>
struct WarpProduct {
  static constexpr int kBuffers = C::kBuffers, kPieces = K == 16 ? 2 : 1, kSteps = 2 / kPieces;
  static constexpr int kM = C::WM / 16, kN = C::WN / 16;
  struct Fragments {
    double a[kM][4 * kPieces], b[kN][4 * kPieces];
  };
  PairReader<TileA> a;
  PairReader<TileB> b;
  double sum[kM][kN][2][4] = {};

  __device__ __forceinline__ WarpProduct(int row, int column) : a(row), b(column) {}

  __device__ __forceinline__ void load(Fragments& f, const unsigned char* stage, int step) const {
    FASTGEMM_UNROLL
    for (int p = 0; p < kPieces; ++p) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kM; ++i) a.load(f.a[i] + 4 * p, stage, i, step + p);
      FASTGEMM_UNROLL
      for (int j = 0; j < kN; ++j) b.load(f.b[j] + 4 * p, stage + TileA::kBytes, j, step + p);
    }
  }
  __device__ __forceinline__ void multiply(const Fragments& f) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kM; ++i) {
      FASTGEMM_UNROLL
      for (int step = 0; step < 2 * kN; ++step) {
        const int j = i % 2 ? 2 * kN - 1 - step : step;  // there and back: one operand is the last one's
        multiply_tile<ROWS, K>(sum[i][j / 2][j % 2], f.a[i], f.b[j / 2] + j % 2);
      }
    }
  }

  // A lane's sums of a block: rows 2 * (lane / 4) and the next one, columns from 4 * (lane % 4) on.
  using Slab = WarpSlab<double, C::WM, C::WN>;
  __device__ __forceinline__ void put(Slab& slab) const {
    const int lane = int(threadIdx.x) % 32;
    double* const to = &slab.sums[lane / 4 * 2 * Slab::kPitch + lane % 4 * 4];
    FASTGEMM_UNROLL
    for (int i = 0; i < kM; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kN; ++j) {
        FASTGEMM_UNROLL
        for (int r = 0; r < 4; ++r)
          store_vector(to + (16 * i + r / 2) * Slab::kPitch + 16 * j + r % 2 * 2,
                       Vector<double, 2>{{sum[i][j][0][r], sum[i][j][1][r]}});
      }
    }
  }
};

template <class C, bool a_along_k, bool b_along_k>
struct Kernel {
  using TileA = LineTile<double, a_along_k, C::BM, Swizzled>;  // (BM, 16)
  using TileB = LineTile<double, b_along_k, C::BN, Swizzled>;  // (BN, 16)
  // Instructions of 16 rows where there are any.
  template <int ROWS, int K>
  using Warp = WarpProduct<C, FASTGEMM_SM90A ? ROWS : 8, FASTGEMM_SM90A ? K : 4, TileA, TileB>;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  union Shared {
    unsigned char ring[C::kStages][kStageBytes];
    WarpSlab<double, C::WM, C::WN> slabs[C::kWarps];
  };
};

template <class C, int ROWS, int K, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_dmma_kernel(const __grid_constant__ TileArguments<double> g) {
  using S = Kernel<C, a_along_k, b_along_k>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  const Place place(int(blockIdx.x), g.tiles_m, g.tiles_n);
  TileCopy<typename S::TileA, double, C::kThreads> a(g.operands.a, blockIdx.z, place.row * C::BM);
  TileCopy<typename S::TileB, double, C::kThreads> b(g.operands.b, blockIdx.z, place.column * C::BN);
  const auto copy = [&](unsigned char* stage) {
    a.copy(stage);
    b.copy(stage + S::TileA::kBytes);
  };

  const int index = warp_index(), row = index % C::kWarpsM * C::WM, column = index / C::kWarpsM * C::WN;
  typename S::template Warp<ROWS, K> warp(row, column);
  multiply_stages<C::kStages, S::kStageBytes>(shared->ring[0], g.steps, copy, warp);
  auto& slab = shared->slabs[index];
  warp.put(slab);
  __syncwarp();
  slab.store(g.gemm.at_batch(blockIdx.z), g.vectors, int64_t(place.row) * C::BM + row,
             int64_t(place.column) * C::BN + column);
}

template <class C, int ROWS, int K>
void launch_dmma(const Gemm<double>& g, int batch, Context& context) {
  const auto arguments = tile_arguments<Takes::any>(g, batch, C::BM, C::BN, 16, context);
  arguments.operands.template with_directions<Takes::any>([&]<bool a_along_k, bool b_along_k>() {
    using S = Kernel<C, a_along_k, b_along_k>;
    const LaunchShape shape{grid_of(arguments, batch), dim3(C::kThreads), sizeof(typename S::Shared)};
    launch<gemm_dmma_kernel<C, ROWS, K, a_along_k, b_along_k>>("dmma", shape, context)(arguments);
  });
}

using DoubleTiles = Config<128, 64, 64, 32, 4, 2, 1>;

template <int ROWS, int K>
void run_dmma(const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (std::is_same_v<T, double>) {
      if (!fits_tiles(g)) return gemm_small(g, batch, context);
      launch_dmma<DoubleTiles, ROWS, K>(g, batch, context);
    }
  });
}

}  // namespace

void gemm_dmma(const GemmProblem& problem, Context& context) { run_dmma<16, 8>(problem, context); }

void gemm_dmma_m8n8k4(const GemmProblem& problem, Context& context) { run_dmma<8, 4>(problem, context); }

}  // namespace fastgemm::FASTGEMM_TARGET
