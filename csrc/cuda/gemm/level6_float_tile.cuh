// Tiles of float32 operands in shared memory, as they lie in global memory, and the elements that a lane
// needs of them for mma.m16n8k16.
//
// Which 16 values of k make a step's k, and in which order, is free as long as both operands agree. So lane
// (r, q), r = lane / 4 and q = lane % 4, whose registers hold the k slots 2q, 2q + 1, 2q + 8, 2q + 9, takes
// neighbours of k where the rows run along k (one 16-byte load), and every fourth one where they run across.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/gemm/vector_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kTileK = 32;  // of a stage: a line of 128 bytes

__device__ __forceinline__ int lane_row() { return fresh_lane() / 4; }
__device__ __forceinline__ int lane_quad() { return fresh_lane() % 4; }

// The k of slot j (0 to 3) of a lane in a step of 16.
template <bool rows_along_k>
__device__ __forceinline__ int k_of_slot(int j) {
  return rows_along_k ? 4 * lane_quad() + j : lane_quad() + 4 * j;
}

// Where element (x, k) lies. Along k: lines of 8 units of 16 bytes, swizzled so that the lanes' 16-byte reads
// (r = 0, 1; q = 0 .. 3) and their scalar ones (r = 0 .. 7) meet no bank twice.
__device__ __forceinline__ int place_along_k(int x, int k) {
  return x * kTileK + ((k / 4 ^ (x % 2 * 4 | x / 2 % 4)) * 4 | k % 4);
}
// Along x: lines of X, padded to `banks` more than a multiple of 32 words.
template <int X, int banks>
inline constexpr int kLinePitch = X + (banks + 32 - X % 32) % 32;

// Copies the tile (X, kTileK) at (x0, k0), zeros outside. All THREADS threads call it.
template <int X, bool along_k, int PITCH, int THREADS>
__device__ __forceinline__ void copy_float_tile(float* to, const PanelSource<float>& from, int64_t x0,
                                                int64_t k0) {
  constexpr int kLength = along_k ? kTileK : X, kLines = along_k ? X : kTileK;
  const auto place = [](int line, int i) { return along_k ? place_along_k(line, i) : line * PITCH + i; };
  const int64_t line0 = along_k ? x0 : k0, first = along_k ? k0 : x0;
  const int lines = inside(along_k ? from.x_extent : from.k_extent, line0, kLines);
  const int length = inside(along_k ? from.k_extent : from.x_extent, first, kLength);
  const int64_t line_stride = along_k ? from.x_stride : from.k_stride;
  const int64_t stride = along_k ? from.k_stride : from.x_stride;
  const float* p = from.data + line0 * line_stride + first * stride;
  const auto copy = [&]<int width /* elements at a time */>() {
    constexpr int kUnits = kLength / width, kStep = THREADS / kUnits;
    static_assert(THREADS % kUnits == 0);
    const int i = int(threadIdx.x) % kUnits * width, line = int(threadIdx.x) / kUnits;
    const int there = max(0, min(length - i, width)) * 4;
    const float* q = p + line * line_stride + i * stride;
    const auto copy_line = [&](int l) {
      if (kLines % kStep != 0 && l + line >= kLines) return;
      const int valid = l + line < lines ? there : 0;
      copy_async<width * 4>(to + place(l + line, i), valid ? q : from.data, valid);
      q += kStep * line_stride;
    };
    if constexpr (width > 1) {
      FASTGEMM_UNROLL
      for (int l = 0; l < kLines; l += kStep) copy_line(l);
    } else {
      FASTGEMM_NO_UNROLL
      for (int l = 0; l < kLines; l += kStep) copy_line(l);
    }
  };
  from.vectors ? copy.template operator()<4>() : copy.template operator()<1>();
}

}  // namespace fastgemm::FASTGEMM_TARGET
