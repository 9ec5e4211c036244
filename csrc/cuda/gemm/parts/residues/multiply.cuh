// The fourth pass: multiplies the residues of each modulus by wgmma, and reduces the sums before they leave
// the chip. A thread reduces its sums to bytes and stores 16 of them at a time, in the order of its
// registers. The pass that joins them (join.cuh) reads them in the same order, so neither pass needs shared
// memory for that.
//
// No tile is shared: persistent blocks take whole tiles in turn. Each tile is computed for every modulus,
// which gives many tiles, so the last wave matters little.
#pragma once

#include "cuda/gemm/parts/residues/operand.cuh"
#include "cuda/gemm/parts/schedules/lower_triangle.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"
#include "cuda/gemm/parts/wgmma_consumer.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

// The layout of the sums in memory: [tile][modulus][part][thread], in units of 16 bytes.
inline constexpr int kSumThreads = 256, kParts = kTileM * kTileN / kSumThreads / 16;
inline constexpr int64_t kTileBytes = kTileM * kTileN;

struct TileShape {
  static constexpr int kM = kTileM, kN = kTileN;
  static constexpr int kConsumers = kM / 64, kConsumerWarps = 4 * kConsumers;
  static constexpr int kThreads = 128 * kConsumers + 128;
  static constexpr int kSums = kN / 2;  // per consumer thread
  static constexpr int kStageBytes = (kM + kN) * 128, kStages = 4;
  struct Shared {
    unsigned char stage[kStages][kStageBytes];
    RingBarriers<kStages> ring;
  };
};

struct MultiplyArguments {
  Selection selection;
  unsigned char* sums;
  int tiles_m, tiles_n, moduli, stages;  // a stage is 128 values of k
  int32_t modulus[kMostModuli], reciprocal[kMostModuli];
};

using ResidueTileA = OperandTile<int8_t, Major::k, kTileM>;
using ResidueTileB = OperandTile<int8_t, Major::k, kTileN>;

struct ResidueMaps {
  TensorMap a, b;
};

// The squares of tiles for the lower triangle of C. `columns` columns of C correspond to one row: 1, or 2 for
// complex products. With 0 columns all of C is computed.
template <int columns>
using ResidueTriangle = LowerTriangle<columns == 1 ? kTileN / kTileM : 1, 1>;
static_assert(kTileN == 2 * kTileM);

// Whether a tile lies outside the triangle.
template <int columns>
__device__ __forceinline__ bool is_above(int tile_row, int tile_column) {
  return columns > 0 && tile_column * (kTileN / max(columns, 1)) >= (tile_row + 1) * kTileM;
}

// Calls body(modulus, tile row, tile column) for the tiles of this block.
template <int triangle, class Body>
__device__ __forceinline__ void for_each_residue_tile(const MultiplyArguments& g, Body&& body) {
  const auto lower = ResidueTriangle<triangle>::of(g.tiles_m, g.tiles_n);
  const int tiles_m = triangle > 0 ? lower.tiles_m : g.tiles_m;
  const int tiles_n = triangle > 0 ? lower.tiles_n : g.tiles_n;
  const int tiles = tiles_m * tiles_n * g.moduli;
  FASTGEMM_NO_UNROLL
  for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x)) {
    const TilePlace<16> place(tile, tiles_m, tiles_n);
    int row = place.row, column = place.column;
    if constexpr (triangle > 0) {
      lower.unfold(row, column);
      if (row >= g.tiles_m || column >= g.tiles_n) continue;
    }
    if (g.selection.takes(row, column)) body(place.batch, row, column);
  }
}

// Reduces sums modulo p to bytes in [0, p].
struct Reduction {
  int32_t modulus, reciprocal;
  __device__ __forceinline__ uint32_t operator()(uint32_t sum) const {
    return sum - uint32_t((multiply_high(int32_t(sum), reciprocal) >> 6) * modulus);
  }
};

template <int R>
__device__ __forceinline__ void store_reduced(unsigned char* to, const uint32_t (&sum)[R],
                                              const Reduction& reduce) {
  FASTGEMM_UNROLL
  for (int part = 0; part < R / 16; ++part) {
    Unit unit;
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at = 16 * part + 4 * i;
      unit[i] = pack(reduce(sum[at]), reduce(sum[at + 1]), reduce(sum[at + 2]), reduce(sum[at + 3]));
    }
    store_vector(to + int64_t{part} * kSumThreads * 16, unit);
  }
}

template <int triangle>
__device__ __forceinline__ void produce(TileShape::Shared& shared, const ResidueMaps& maps,
                                        const MultiplyArguments& g) {
  const bool elected = elect_one();
  RingPosition<TileShape::kStages> at{0, 1};  // a new stage counts as empty
  for_each_residue_tile<triangle>(g, [&](int modulus, int row, int column) {
    FASTGEMM_NO_UNROLL
    for (int step = 0; step < g.stages; ++step)
      shared.ring.fill(at, elected, TileShape::kStageBytes, [&](int stage, Barrier* full) {
        unsigned char* const to = shared.stage[stage];
        ResidueTileA::load(to, &maps.a, full, row * kTileM, step * 128, modulus);
        ResidueTileB::load(to + ResidueTileA::kBytes, &maps.b, full, column * kTileN, step * 128, modulus);
      });
  });
}

template <int triangle>
__device__ __forceinline__ void consume(TileShape::Shared& shared, const MultiplyArguments& g, int warp) {
  using Products = SharedOperands<int8_t, ResidueTileA, ResidueTileB, Major::k, Major::k>;
  WgmmaConsumer<TileShape::kStages, TileShape::kStageBytes, Products> consumer(shared.ring, shared.stage[0],
                                                                               warp);
  uint32_t sum[TileShape::kSums];  // (64, 256) per warpgroup
  for_each_residue_tile<triangle>(g, [&](int modulus, int row, int column) {
    consumer.multiply(sum, false, [] {});
    FASTGEMM_NO_UNROLL
    for (int left = g.stages - 1; left > 0; --left) consumer.multiply(sum, true, [] {});
    consumer.finish(sum);
    const int64_t tile = (int64_t{row} * g.tiles_n + column) * g.moduli + modulus;
    store_reduced(g.sums + tile * kTileBytes + int(threadIdx.x) * 16, sum,
                  Reduction{g.modulus[modulus], g.reciprocal[modulus]});
  });
}

template <int triangle>
__global__ void __launch_bounds__(TileShape::kThreads, 1)
    multiply_kernel(const __grid_constant__ ResidueMaps maps, const __grid_constant__ MultiplyArguments g) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(TileShape::Shared, shared);
  if (threadIdx.x == 0) {
    shared->ring.init(1, TileShape::kConsumerWarps);
    fence_barrier_init();
  }
  __syncthreads();
  const int warp = warp_index();
  if (warp < TileShape::kConsumerWarps) {
    claim_registers<232>();
    return consume<triangle>(*shared, g, warp);
  }
  release_registers<40>();
  if (warp == TileShape::kConsumerWarps) produce<triangle>(*shared, maps, g);
#endif
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
