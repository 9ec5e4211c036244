// Tiles and arguments of packed_wgmma.cu. Contract: a block, or a cluster of blocks that share the k of each
// tile, computes whole tiles or equal shares of the stages of all tiles (parts/schedules/shares.cuh). A tile
// has S::kRows rows of the weight and S::kN rows of x.
//
//   stage    2 S::kAlongK pieces of x, (kN, 64) each, with S::kFew (8, 64) if that is enough | four units
#pragma once

#include "cuda/device/cluster.cuh"
#include "cuda/gemm/packed/unit_fragments.cuh"
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/schedules/shares.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <int COLUMNS, int ALONG_K>
struct PackedTile {
  static constexpr int kWarpgroups = 4, kConsumerThreads = 128 * kWarpgroups,
                       kThreads = kConsumerThreads + 128;
  static constexpr int kN = COLUMNS, kAlongK = ALONG_K;
  static constexpr int kRowUnits = kWarpgroups / kAlongK, kRows = packed::kRows * kRowUnits;
  static constexpr bool kFew = kN == 16;
  static constexpr int kXBytes = 2 * kAlongK * kN * 128;  // of x in a stage, at most
  // 80 KB of the weight in flight are enough. With more stages the multiprocessors near to memory take more
  // than their share of its bandwidth, and the others end late.
  static constexpr int kMostStages = 4;
  // The sums pass through shared memory as columns of 64 rows, kPass columns at a time. The padding keeps
  // rows of fragments in different banks.
  static constexpr int kPass = kN <= 64 ? kN / (kAlongK == 1 ? 2 : 1) : 16, kPitch = packed::kRows + 4;

  // Blocks of a cluster may share the k of a tile, if a tile is one pass.
  static constexpr int kMostOfCluster = kAlongK == 1 ? 1 : kFew ? 4 : 2;
  static_assert(kMostOfCluster == 1 || kPass == kN);

  struct Shared {
    RingBarriers<kMostStages> ring;
    Barrier sent[kRowUnits];  // the sums of the other blocks of the cluster are here, 64 rows each
    alignas(16) float sums[kWarpgroups][kPass * kPitch];
    alignas(16) float of_others[std::max(kMostOfCluster - 1, 1)][kMostOfCluster > 1 ? kN* kRows : 4];
  };
  static constexpr int kSharedBytes = 227 << 10, kStagesAt = int(sizeof(Shared) + 1023) / 1024 * 1024;
  FASTGEMM_ANYWHERE static constexpr int table_bytes(Code code) {
    return code == Code::nf4 ? NormalFloatTable::kBytes : 0;
  }
  static constexpr int kMostStageBytes = (kSharedBytes - kStagesAt) / 2;
  static_assert(kXBytes + kWarpgroups * 14 * 1024 <= kMostStageBytes, "two stages at least");
};

struct UnitArguments : WeightUnits {
  Scaled scaled;
  int x_rows;                    // in a box
  int box_bytes, x_bytes;        // of x in a stage: of 64 columns, of all
  bool whole_pieces;             // k is a multiple of 64
  int tiles_down, tiles_across;  // along the rows of the weight and of x
  int row_pitch;                 // of units below each other in a stage
  int stage_bytes, stages;
  int cluster, log_cluster;  // blocks that share the k of each of their tiles
  Shares shares;             // of a cluster
  float* partials;           // of shared tiles; null: no tile is shared
  float* wholes;  // of the other tiles, if the second kernel applies an epilogue to them; else null
  ResultVectors vectors;
  Epilogue epilogue;

  // Calls body(part) for the parts of this block, in the order of all blocks of its cluster.
  template <class S, class Body>
  __device__ __forceinline__ void each_part(Body&& body) const {
    const auto of_rank = [&](Part part) {
      const int rank = cluster > 1 ? cluster_rank() : 0;
      if (cluster > 1)
        part.first = shares.steps * rank >> log_cluster, part.end = shares.steps * (rank + 1) >> log_cluster;
      body(part);
    };
    if constexpr (S::kMostOfCluster == 1)
      shares.each_part(int(blockIdx.x), int(gridDim.x), body);
    else
      shares.template each_part<true>(int(blockIdx.x) >> log_cluster, int(gridDim.x) >> log_cluster, of_rank);
  }
};
template <class T>
struct UnitGemm : UnitArguments {
  Gemm<T> gemm;
};

// The first unit along n, and the first row of x, of a tile. Tiles that read the same units are far from each
// other in this order, so that different blocks read the units at about the same time, and all but one find
// them in L2.
template <class S>
struct PackedPlace {
  int row_unit, column;
  __device__ __forceinline__ PackedPlace(int tile, const UnitArguments& g) {
    const int across = S::kAlongK > 1 && g.tiles_across == 1 ? 0 : tile / g.tiles_down;
    row_unit = (tile - across * g.tiles_down) * S::kRowUnits, column = across * S::kN;
  }
};

using PackedTile16 = PackedTile<16, 4>;
using PackedTile32 = PackedTile<32, 4>;
using PackedTile32Tall = PackedTile<32, 2>;  // a stage has half as much of x
using PackedTile64 = PackedTile<64, 1>;
using PackedTile128 = PackedTile<128, 1>;  // only with Scaled::rows and weights

__device__ __forceinline__ void advance_ring(int& stage, uint32_t& phase, int stages) {
  if (++stage == stages) stage = 0, phase ^= 1;
}

}  // namespace fastgemm::FASTGEMM_TARGET
