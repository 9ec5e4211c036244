// Tiles, stages and arguments of packed_mma (level6_mma.cu). Contract: a block computes tiles of BM rows of x
// and kBN rows of the weight. Two groups of four warps share the k of a tile, and add their sums at its end.
// A stage has the units of the weight as they lie in device memory, so one contiguous piece for each row of
// units:
//
//   stage   | kFragments rows of kUnits units, codes, scales and zeros | x: tiles of (BM, 128 B) |
//
// With two units along k each group of warps has one, else each has a half.
#pragma once

#include "cuda/gemm/packed/unit_fragments.cuh"
#include "cuda/gemm/packed/x_copy.cuh"
#include "cuda/gemm/parts/schedules/shares.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A tile, and how the warps of a block share it. A warp has kFragments blocks of 16 rows of the weight.
template <int BM_>
struct MmaTile {
  static constexpr int BM = BM_, kTiles = BM / 8;  // of mma, side by side along the rows of x
  static constexpr int kGroups = 2, kGroupWarps = 4, kWarps = 8, kThreads = 32 * kWarps;
  // More rows of x would be read from shared memory more often than multiplied, so each serves 32 rows of the
  // weight.
  static constexpr int kFragments = BM == 64 ? 2 : 1;
  static constexpr int kRows = 16 * kFragments, kBN = kGroupWarps * kRows;
  static constexpr int kSlabPitch = kRows + 4;  // lanes that put a tile of mma use all banks
};

template <Code code_, int BM_, Scaled scaled_>
struct MmaShape : MmaTile<BM_> {
  using Tile = MmaTile<BM_>;
  using Tile::kFragments, Tile::kGroups, Tile::kWarps, Tile::BM;
  static constexpr Code kCode = code_;
  static constexpr Scaled kScaled = scaled_;
  // Blocks on a multiprocessor. Scales of any kind leave too few registers for two large tiles.
  static constexpr int kBlocks = kScaled == Scaled::any && BM == 64 ? 1 : 2;
  // Units along k in a stage, and k16 steps of a warp: in a stage, and that are converted at a time.
  static constexpr int kUnits = BM < 64 && bits_of(kCode) == 4 ? 2 : 1;
  static constexpr int kSteps = 8 * kUnits / kGroups, kBatch = BM == 64 ? 2 : 4;
  static constexpr int kColumns = kUnits * packed::kColumns;

  // Scales and zeros of a unit may take kTailBytes; more are rejected (rules.h).
  static constexpr int kTailBytes = bits_of(kCode) == 4 ? 1024 : 2048;
  static constexpr int kRowBytes =
      kUnits * (packed::kRows * packed::kColumns * bits_of(kCode) / 8 + kTailBytes);
  static constexpr int kWeightBytes = kFragments * kRowBytes;
  static constexpr int kLines = kColumns / 64;  // tiles of x (BM, 64) side by side
  static constexpr int kStageBytes = kWeightBytes + kLines * BM * 128;
  // As many as fit into the 99 KB that every GPU has; more in flight would not be faster.
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

// The place of a tile: its first row of x and of the weight. Tiles under way at a time share both in L2.
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
