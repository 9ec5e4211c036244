// The tile of bf16x6_fused, and how its operands are cut into planes between shared memory and the tensor
// cores.
//
//   rows     (shared memory, float32) --> registers: cut by the lane that multiplies them -----> products
//   columns  (shared memory, float32) --> cut by the block, a stage ahead --> shared planes ---> products
//
// The planes of the rows stay in registers, since no other lane needs them. All warps need the planes of the
// columns, so the block cuts these once, into shared memory.
#pragma once

#include "cuda/device/wgmma.cuh"
#include "cuda/gemm/fast/raw_tile.cuh"
#include "cuda/gemm/parts/planes/scheme.cuh"
#include "cuda/gemm/predict/fused_plan.h"

namespace fastgemm::FASTGEMM_TARGET::fused {

using Scheme = planes::Bf16x6;
inline constexpr int kPlanes = Scheme::kPlanes;
inline constexpr float kScale = 16777216.f, kUnscale = 1 / (kScale * kScale);  // 2^24
inline constexpr int kHalves = 2;                                              // two wgmma of 64 rows
inline constexpr int kSteps = kTileK / 16;

// The block tile (kRows, kColumns). Four warps compute 128 rows of it; with `by_wgmma`, they are a warpgroup.
//
// With mma.sync, multiplying a stage takes longer than loading the next one, so two stages are enough. A
// block then fits into the 99 KB that every GPU has, and two blocks into the 164 KB of data-center GPUs.
template <int columns_, bool rows_along_k_, bool by_wgmma, int warpgroups = 1>
struct Tile {
  static constexpr bool kRowsAlongK = rows_along_k_, kByWgmma = by_wgmma;
  static constexpr int kWarps = 4 * warpgroups, kThreads = 32 * kWarps, kRows = 64 * kHalves * warpgroups;
  static constexpr int kColumns = columns_, kFragments = columns_ / 8, kSums = columns_ / 2;
  static constexpr int kStages = !by_wgmma ? 2 : columns_ == 32 ? 4 : 3;
  static constexpr int kBlocksAnSM = plans::FusedTile{kRows, columns_}.most_blocks();
  static constexpr int kRowPitch = kLinePitch<kRows, 8>;
  // Lines that begin 24 banks apart avoid conflicts as well as lines 8 banks apart. With 16 columns they are
  // shorter, so that two blocks fit into 100 KB.
  static constexpr int kColumnBanks = rows_along_k_ ? 4 : by_wgmma || columns_ > 16 ? 8 : 24;
  static constexpr int kColumnPitch = kLinePitch<kColumns, kColumnBanks>;
  static constexpr int kRowWords = kRowsAlongK ? kRows * kTileK : kTileK * kRowPitch;
  static constexpr int kColumnWords = kTileK * kColumnPitch;

  // A plane of a step in wgmma's layout: 8 values of k of all columns, then the other 8, each with 4 words
  // per column.
  static constexpr int kHalfWords = kColumns * 4, kPlaneWords = 2 * kHalfWords;
  struct Ring {
    float rows[kStages][kRowWords];                                 // (kRows, kTileK)
    float columns[kStages][kColumnWords];                           // (kColumns, kTileK)
    alignas(128) uint32_t planes[2][kSteps][kPlanes][kPlaneWords];  // for columns of two stages
  };
  // The sums on their way to C. The rows of C are the rows of the tile, or its columns if swapped.
  static constexpr int kSlabPitchAlongRows = kLinePitch<kRows, 4>;        // (kColumns, kRows)
  static constexpr int kSlabPitchAlongColumns = kLinePitch<kColumns, 8>;  // (kRows, kColumns)
  union Shared {
    Ring ring;
    float slab[std::max(kColumns * kSlabPitchAlongRows, kRows* kSlabPitchAlongColumns)];
  };
};

// The planes of the columns: of a step, and of a stage.
template <class T>
using StepPlanes = uint32_t[kPlanes][T::kPlaneWords];
template <class T>
using StagePlanes = StepPlanes<T>[kSteps];

// Cuts eight floats into planes, each four registers of a fragment.
__device__ __forceinline__ void cut(const float (&x)[8], uint32_t (&planes)[kPlanes][4]) {
  uint32_t bits[8];
  FASTGEMM_UNROLL
  for (int i = 0; i < 8; ++i) bits[i] = __float_as_uint(x[i] * kScale);
  Scheme::cut(bits, planes);
}

// The row of a lane's slot i among the 32 of its warp: slots 0 and 1 belong to the first half, 2 and 3 to the
// second.
template <bool rows_along_k>
__device__ __forceinline__ int row_of_slot(int i) {
  return rows_along_k ? 8 * i + lane_row() : 4 * lane_row() + i;
}

using Fragments = uint32_t[kHalves][kPlanes][4];

// Cuts the fragments of a step from the warp's rows.
template <class T>
__device__ __forceinline__ void cut_rows(Fragments& to, const float* tile, int step) {
  using Four = Vector<float, 4>;
  const int row = int(threadIdx.x) / 32 * 32;
  float x[4][4];  // slot, k
  FASTGEMM_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (T::kRowsAlongK) {
      const int at = place_along_k(row + lane_row(), 4 * lane_quad()) ^ 16 * step;
      const Four four = load_vector<Four>(tile + at + 8 * i * kTileK);
      FASTGEMM_UNROLL
      for (int k = 0; k < 4; ++k) x[i][k] = four[k];
    } else {
      const int k = 16 * step + 4 * i + lane_quad();
      const Four four = load_vector<Four>(tile + k * T::kRowPitch + row + 4 * lane_row());
      FASTGEMM_UNROLL
      for (int s = 0; s < 4; ++s) x[s][i] = four[s];
    }
  }
  FASTGEMM_UNROLL
  for (int h = 0; h < kHalves; ++h) {
    const float(&low)[4] = x[2 * h], (&high)[4] = x[2 * h + 1];
    const float fragment[8] = {low[0], low[1], high[0], high[1], low[2], low[3], high[2], high[3]};
    cut(fragment, to[h]);
  }
}

// Cuts a stage's columns into planes. A warp takes 8 columns at a time, for both steps. It is also called for
// the stage after the last one, whose planes are not read.
template <class T>
__device__ __forceinline__ void cut_columns(StagePlanes<T>& to, const float* tile, bool along_k) {
  static_assert(kSteps == 2);
  FASTGEMM_UNROLL
  for (int first = 0; first < T::kFragments; first += T::kWarps) {
    const int fragment = first + int(threadIdx.x) / 32;
    if (T::kFragments % T::kWarps != 0 && fragment >= T::kFragments) return;
    const int column = 8 * fragment + lane_row();
    const int k0 = T::kRowsAlongK ? 4 * lane_quad() : lane_quad();
    constexpr int kNext = T::kRowsAlongK ? 1 : 4;  // the distance along k from slot to slot
    float x[8];
    if (along_k && T::kRowsAlongK && !T::kByWgmma) {
      FASTGEMM_UNROLL
      for (int i = 0; i < 8; i += 4) {
        const float& first = tile[place_along_k(column, k0) ^ 4 * i];
        const auto four = load_speculative(reinterpret_cast<const Vector<float, 4>&>(first));
        FASTGEMM_UNROLL
        for (int k = 0; k < 4; ++k) x[i + k] = four[k];
      }
    } else if (along_k) {
      FASTGEMM_UNROLL
      for (int i = 0; i < 8; ++i)
        x[i] = load_speculative(tile[place_along_k(column, k0) ^ (16 * (i / 4) + kNext * (i % 4))]);
    } else {
      FASTGEMM_UNROLL
      for (int i = 0; i < 8; ++i)
        x[i] = load_speculative(tile[(k0 + 16 * (i / 4) + kNext * (i % 4)) * T::kColumnPitch + column]);
    }
    uint32_t planes[kPlanes][4];
    cut(x, planes);
    FASTGEMM_UNROLL
    for (int i = 0; i < kPlanes * 4; ++i)
      to[i % 4 / 2][i / 4][i % 2 * T::kHalfWords + 4 * column + lane_quad()] = planes[i / 4][i % 4];
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET::fused
