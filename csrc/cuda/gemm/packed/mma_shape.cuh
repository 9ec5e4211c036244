// Tiles, stages and arguments of packed_mma (level6_mma.cu). Contract: a block computes tiles of BM rows of x
// and kBN rows of the weight. Two groups of four warps share the k of a tile, and add their sums at its end.
// A stage has two units of the weight, one below the other, as they lie in device memory, so two contiguous
// pieces. Each group of warps has a half of both.
//
//   stage   | unit: codes, scales and zeros | the unit below | x: two tiles of (BM, 128 B) |
#pragma once

#include "cuda/gemm/packed/unit_fragments.cuh"
#include "cuda/gemm/packed/x_copy.cuh"
#include "cuda/gemm/parts/schedules/shares.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A tile, and how the warps of a block share it. A warp has two blocks of 16 rows of the weight, so that each
// fragment of x is multiplied twice.
template <int BM_>
struct MmaTile {
  static constexpr int BM = BM_, kTiles = BM / 8;  // of mma, side by side along the rows of x
  static constexpr int kGroups = 2, kGroupWarps = 4, kWarps = 8, kThreads = 32 * kWarps;
  static constexpr int kFragments = 2, kRows = 16 * kFragments, kBN = kGroupWarps * kRows;
  static constexpr int kSlabPitch = kRows + 4;  // so a warp that stores a tile of mma uses all banks
};

template <Code code_, int BM_, Scaled scaled_>
struct MmaShape : MmaTile<BM_> {
  using Tile = MmaTile<BM_>;
  using Tile::kFragments, Tile::kWarps, Tile::BM;
  static constexpr Code kCode = code_;
  static constexpr Scaled kScaled = scaled_;
  // On a multiprocessor. Two blocks leave 128 registers for a thread. That is too few for more sums, and for
  // scaled weights of int8.
  static constexpr int kBlocks = BM > 16 || (kCode == Code::int8 && kScaled == Scaled::pairs) ? 1 : 2;
  // The k16 steps of a warp in a stage, and how many of them are converted at a time.
  static constexpr int kSteps = 4, kBatch = BM == 16 || bits_of(kCode) == 8 ? 2 : 4;
  static constexpr int kColumns = packed::kColumns,
                       kUnits = kFragments * 16 * Tile::kGroupWarps / packed::kRows;

  // Scales and zeros of a unit may take kTailBytes; more are rejected (rules.h).
  static constexpr int kTailBytes = plans::packed_tail_bytes(bits_of(kCode));
  static constexpr int kUnitBytes = packed::kRows * packed::kColumns * bits_of(kCode) / 8 + kTailBytes;
  static constexpr int kWeightBytes = kUnits * kUnitBytes;
  static constexpr int kStageBytes = kWeightBytes + 2 * BM * 128;
  // As many stages as fit into the 99 KB that every GPU has. More stages in flight would not be faster.
  static constexpr int kStages = kStageBytes * 4 <= kLeastBlockBytes - 10240   ? 4
                                 : kStageBytes * 3 <= kLeastBlockBytes - 10240 ? 3
                                                                               : 2;

  template <class T>
  using X = XTile<T, BM>;

  struct Shared {
    alignas(1024) unsigned char ring[kStages][kStageBytes];
    alignas(16) float slab[kWarps][8 * Tile::kSlabPitch];  // 8 rows of C
  };
  static_assert(sizeof(Shared) <= kLeastBlockBytes);
};

template <class T>
struct MmaArguments : WeightUnits {
  Gemm<T> gemm;
  PackedRows<T> x;  // its rows begin at multiples of 16 bytes
  int m, k;
  ResultVectors vectors;
  int tiles_m, tiles_n;
  Shares shares;
  float* partials;  // null: no tile is shared
};

// The place of a tile: its first row of x and of the weight. Tiles that are computed at the same time share
// both in L2.
template <class S>
struct MmaPlace {
  int row, column;
  template <class T>
  __device__ __forceinline__ MmaPlace(int tile, const MmaArguments<T>& g) {
    const TilePlace<8> place(tile, g.tiles_m, g.tiles_n);
    row = place.row * S::BM, column = place.column * S::kBN;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
