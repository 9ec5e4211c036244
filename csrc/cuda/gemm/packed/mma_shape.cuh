// Tiles, stages and arguments of packed_mma (level6_mma.cu). Contract: a block computes tiles of BM rows of x
// and kBN rows of the weight. Of a stage a warp owns kFragments blocks of 16 rows of the weight: their codes,
// scales and zeros lie in memory of its own; x is shared by all warps.
//
//   stage  | codes [warp][fragment][piece][lane] 16 B | scales, zeros [warp][fragment] 256 B | x (BM, 128 B)
//   ... |
#pragma once

#include "cuda/gemm/packed/fragments.cuh"
#include "cuda/gemm/packed/x_copy.cuh"
#include "cuda/gemm/parts/schedules/shares.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// How scales come into the products: `sums` multiplies the float32 sums of each group, and `fragments` the
// weights before they are multiplied, which takes no second set of sums and rounds each weight once more.
enum class ScalesOn { sums, fragments };

// What a warp's blocks of 16 rows of a stage may take: scales and zeros. More is rejected (rules.h).
inline constexpr int kSliceBytes = 256;

// A tile, and how the warps of a block share it.
template <int BM_, int FRAGMENTS>
struct MmaTile {
  static constexpr int BM = BM_, kWarps = 8, kThreads = 32 * kWarps;
  static constexpr bool kWide = BM == 128;
  static constexpr int kTiles = BM / 8;         // of mma, side by side along the rows of x
  static constexpr int kFragments = FRAGMENTS;  // blocks of 16 rows of the weight for a warp
  // Few rows of x: two groups of warps have neighbouring units along k, so that a tile is 64 rows high, few
  // blocks share one, and their sums are few.
  static constexpr int kGroups = BM == 16 ? 2 : 1, kGroupWarps = kWarps / kGroups;
  static constexpr int kRows = 16 * kFragments, kBN = kGroupWarps * kRows;
  static constexpr int kSlabPitch = kRows + 4;  // lanes that put a tile of mma use all banks
};

template <Code code_, int BM_, ScalesOn scales_on>
struct MmaShape : MmaTile<BM_, BM_ == 128 && scales_on == ScalesOn::fragments ? 2 : 1> {
  using Tile = MmaTile<BM_, BM_ == 128 && scales_on == ScalesOn::fragments ? 2 : 1>;
  using Tile::kFragments, Tile::kGroups, Tile::kWarps, Tile::kWide, Tile::BM;
  static constexpr Code kCode = code_;
  static constexpr ScalesOn kScalesOn = scales_on;
  // On a multiprocessor. With 128 registers the conversions of nf4 and e4m3 do not fit beside 64 sums.
  static constexpr int kBlocks = kWide || (BM == 64 && (kCode == Code::nf4 || kCode == Code::e4m3)) ? 1 : 2;
  // A stage: pieces of 16 bytes of codes for each lane, steps of 16 columns, columns of one group.
  static constexpr int kPieces = kWide && bits_of(kCode) == 4 ? 1 : 2;
  static constexpr int kSteps = kPieces * kReadSteps<kCode>, kColumns = 16 * kSteps;
  static constexpr int kStageColumns = kGroups * kColumns;
  static_assert(packed::kColumns % kColumns == 0 && kColumns % 64 == 0);

  static constexpr int kPieceBytes = 512, kCodeBytes = kWarps * kFragments * kPieces * kPieceBytes;
  static constexpr int kScaleBytes = kWarps * kFragments * kSliceBytes;
  static constexpr int kLines = kStageColumns / 64;  // tiles of x (BM, 64) side by side
  static constexpr int kXBytes = kLines * BM * 128;
  static constexpr int kStageBytes = kCodeBytes + kScaleBytes + kXBytes;
  // As many as fit into the 99 KB that every GPU has; more in flight would not be faster.
  static constexpr int kStages = kStageBytes * 4 <= kLeastBlockBytes - 8192   ? 4
                                 : kStageBytes * 3 <= kLeastBlockBytes - 8192 ? 3
                                                                              : 2;

  template <class T>
  using X = XTile<T, BM>;

  // Scales and zeros of a stage as float32: 16 rows, those of a thread (8 apart) side by side.
  struct Numbers {
    alignas(16) float scale[kFragments][kSteps][16];
    alignas(16) float zero[kFragments][kSteps][16];
  };
  struct Shared {
    alignas(1024) unsigned char ring[kStages][kStageBytes];
    union {
      Numbers numbers;
      alignas(16) float slab[8 * Tile::kSlabPitch];  // 8 rows of C
    } of_warp[Tile::kWarps];
  };
  static_assert(sizeof(Shared) <= kLeastBlockBytes);
};

// How the scales of 16 rows lie in a stage, in pieces of 16 bytes.
struct ScaleSlices {
  int groups;                // of columns in a stage; 0: one scale serves whole rows
  int group_log;             // of the columns of a group, of a unit at most
  int steps_log, last_step;  // of the steps of a group in a stage; their number minus 1, or -1 without groups
  int scale_pieces, pieces;  // of scales; of zeros too
  int scale_log, zero_log;   // of their sizes
  bool by_unit;              // one scale for all rows of a unit

  // The first group of a stage that begins at this column of a unit.
  __device__ __forceinline__ int first_group(int column) const { return column >> group_log; }
};

template <class T>
struct MmaArguments {
  Gemm<T> gemm;
  PackedOperand b;
  PackedRows<T> x;  // its rows begin at multiples of 16 bytes
  int m, n, k;
  ScaleSlices slices;
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
