//   make sim KERNEL=packed_cp_async
//
// Level 5 with weights of 4 and 8 bits: latency. What changes from level 4: codes, scales and x of a stage of
// 64 columns come by asynchronous copies of 16 bytes, straight to shared memory. A ring of three stages has
// two of them on their way while one is decoded and multiplied, so that memory works all the time, and a copy
// needs no register. Codes lie in the ring as in a unit, in a quarter of the bytes of 16-bit weights.
//
//   ring  | codes, scales, x | codes, scales, x | codes, scales, x |
//             decode -> float32 tile -> outer products     on their way
//
// x lies in the ring in rows, as in memory. A thread reads 16 bytes along k of each of its 8 rows, for 4 or 8
// outer products. The units of a row are swizzled, so that 4 rows side by side are in different banks.
//
// What is left: every weight passes through shared memory as float32, which takes eight times the bytes of
// its code; and the products are ordinary multiply-adds. Level 6 feeds tensor cores with fragments decoded in
// registers.
#include "cuda/device/async_copy.cuh"
#include "cuda/gemm/packed/thread_sums.cuh"
#include "cuda/gemm/packed/weight_tile.cuh"
#include "cuda/gemm/packed/x_copy.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = ThreadSums::kBM, kBN = WeightTile::kN, kBK = WeightTile::kK, kThreads = 128, kStages = 3;
constexpr int kMostScaleBytes =
    2 * packed::kRows * packed::kColumns / 16 * 4;  // scales and zeros of a unit: float32, groups of 16

template <class T>
struct Stage {
  static constexpr int kTiles = kBK / XTile<T, kBM>::kK;
  alignas(1024) unsigned char x[kTiles * XTile<T, kBM>::kBytes];
  unsigned char codes[kBN * kBK];
  unsigned char scales[kMostScaleBytes];
};
template <class T>
struct Shared {
  Stage<T> ring[kStages];
  WeightTile weight;
};
static_assert(sizeof(Shared<float>) <= kLeastBlockBytes);

template <class T>
struct Arguments {
  PackedGemm<T> problem;
  PackedRows<T> x;
  unsigned tiles_n;
  ResultVectors vectors;
};

__device__ __forceinline__ int row_of(int i) { return ThreadSums::place_m() + i * ThreadSums::kPlacesM; }

template <class T>
__device__ __forceinline__ void request(const Arguments<T>& g, Stage<T>& to, BlockTile tile, int step) {
  const PackedOperand& b = g.problem.b;
  const int k0 = step * kBK;
  if (k0 < b.k) {
    const UnitView unit = b.unit_at(tile.col, k0);
    const unsigned char* const codes =
        unit.codes + WeightTile::first_code(b.weight.code, k0 % packed::kColumns);
    for (int i = int(threadIdx.x) * 16; i < WeightTile::code_bytes(b.weight.code); i += kThreads * 16)
      copy_async<16>(to.codes + i, codes + i);
    const unsigned char* const scales = unit.codes + packed::unit_code_bytes(b.weight);
    for (int i = int(threadIdx.x) * 16; i < b.bytes - packed::unit_code_bytes(b.weight); i += kThreads * 16)
      copy_async<16>(to.scales + i, scales + i);
    copy_x_stage<kBM, Stage<T>::kTiles, kThreads>(to.x, g.x, int(g.problem.gemm.m), int(b.k), int(tile.row),
                                                  k0);
  }
  commit_async_copies();  // also an empty group, so that groups are counted like stages
}

// The products of a stage: for 16 bytes of each of the thread's rows of x at a time, an outer product for
// each k.
template <class T>
__device__ __forceinline__ void multiply(ThreadSums& sums, const Stage<T>& stage, const WeightTile& weight) {
  constexpr int kEach = kPer16Bytes<T>;
  FASTGEMM_NO_UNROLL
  for (int unit = 0; unit < kBK / kEach; ++unit) {
    Vector16<T> x[ThreadSums::kM];
    FASTGEMM_UNROLL
    for (int i = 0; i < ThreadSums::kM; ++i)
      x[i] = load_vector<Vector16<T>>(stage.x + unit / 8 * XTile<T, kBM>::kBytes +
                                      XTile<T, kBM>::offset(row_of(i), unit % 8));
    FASTGEMM_UNROLL
    for (int e = 0; e < kEach; ++e) {
      float rows[ThreadSums::kM];
      FASTGEMM_UNROLL
      for (int i = 0; i < ThreadSums::kM; ++i) rows[i] = widen(x[i][e]);
      sums.add_outer_product(
          rows, load_vector<Vector16<float>>(
                    &weight.w[(unit * kEach + e) * WeightTile::kPitch + ThreadSums::place_n() * 4]));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_packed_cp_async_kernel(const __grid_constant__ Arguments<T> g) {
  FASTGEMM_DYNAMIC_SHARED(Shared<T>, shared);
  const PackedOperand& b = g.problem.b;
  const BlockTile tile = block_tile<kBM, kBN>(g.tiles_n);
  const int steps = int((b.k + kBK - 1) / kBK);
  FASTGEMM_NO_UNROLL
  for (int i = 0; i < kStages - 1; ++i) request(g, shared->ring[i], tile, i);
  WeightTile& weight = shared->weight;
  weight.init();

  ThreadSums sums;
  int at = 0, next = kStages - 1;
  FASTGEMM_NO_UNROLL
  for (int step = 0; step < steps; ++step) {
    wait_async_copies<kStages - 2>();
    __syncthreads();  // all may read this stage, and all have read the one before
    request(g, shared->ring[next], tile, step + kStages - 1);
    const Stage<T>& stage = shared->ring[at];
    UnitView unit = b.unit_at(tile.col, int64_t(step) * kBK);
    // Scales that serve whole rows are read from global memory.
    if (!b.by_rows) unit.scales = stage.scales, unit.zeros = stage.scales + b.scale_bytes;
    weight.read_scales(b, unit, step * kBK % packed::kColumns);
    __syncthreads();
    weight.decode(b, stage.codes);
    __syncthreads();
    multiply(sums, stage, weight);
    next = at, at = at == kStages - 1 ? 0 : at + 1;
  }
  sums.store(g.problem.gemm, g.vectors, tile, row_of);
}

}  // namespace

void gemm_packed_cp_async(const GemmProblem& problem, Context& context) {
  run_packed_floats(problem, context, [&]<class T>(const PackedGemm<T>& p) {
    const TileGrid tiles = tile_grid(p.gemm.m, p.gemm.n, kBM, kBN, 1);
    const Arguments<T> arguments{p, aligned_x(p.gemm, context), tiles.tiles_n, result_vectors(p.gemm.result)};
    launch<gemm_packed_cp_async_kernel<T>>("packed_cp_async", {tiles.grid, dim3(kThreads), sizeof(Shared<T>)},
                                           context)(arguments);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
