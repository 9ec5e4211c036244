// Tiles of float32 operands in shared memory, as they lie in global memory, and the elements that a lane
// needs of them for wgmma.
//
// Which 16 values of k make an instruction's k, and in which order, is free as long as both operands agree.
// So lane (r, q), r = lane / 4 and q = lane % 4, whose registers hold the k slots 2q, 2q + 1, 2q + 8, 2q + 9,
// takes neighbours of k where the rows run along k (one 16-byte load), and every fourth one where they run
// across.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/gemm/vector_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kTileK = 32;  // of a stage: a line of 128 bytes

__device__ __forceinline__ int lane_row() { return int(threadIdx.x) % 32 / 4; }
__device__ __forceinline__ int lane_quad() { return int(threadIdx.x) % 4; }

// Where element (x, k) lies in a tile that runs along k: lines of 8 units of 16 bytes, swizzled so that
// neither the lanes' 16-byte reads (r = 0, 1; q = 0 .. 3) nor their scalar ones (r = 0 .. 7) meet a bank
// twice.
__device__ __forceinline__ int place_along_k(int x, int k) {
  return x * kTileK + ((k / 4 ^ (x % 2 * 4 | x / 2 % 4)) * 4 | k % 4);
}
// In a tile that runs along x, lines have X words, padded to `banks` more than a multiple of 32.
template <int X, int banks>
inline constexpr int kLinePitch = X + (banks + 32 - X % 32) % 32;

// Copies the tiles (X, kTileK) of an operand, k by k, zeros outside; all THREADS threads call it.
template <int X, int PITCH, int THREADS>
class TileCopy {
 public:
  __device__ __forceinline__ TileCopy(const PanelSource<float>& from, int64_t x0, int64_t k0)
      : from_(from), along_k_(from.k_stride == 1), x_left_(inside(from.x_extent, x0, X)) {
    data_ = from.data + x0 * from.x_stride + k0 * from.k_stride;
    k_left_ = from.k_extent - k0;
    line_stride_ = along_k_ ? from.x_stride : from.k_stride;
    const Unit first = unit(int(threadIdx.x), 4);
    next_ = data_ + first.line * line_stride_ + first.i;
    to_ = first.place;
    const Unit second = unit(int(threadIdx.x) + THREADS, 4);
    line_step_ = (second.line - first.line) * line_stride_;
    to_step_ = second.place - first.place;
  }

  __device__ __forceinline__ void copy(float* tile) {
    if (k_left_ <= 0) return;
    if (from_.vectors && x_left_ == X && k_left_ >= kTileK)
      copy_whole(tile);
    else if (from_.vectors)
      copy_part<4>(tile);
    else
      copy_part<1>(tile);
    data_ += kTileK * from_.k_stride;
    next_ += kTileK * from_.k_stride;
    k_left_ -= kTileK;
  }

 private:
  static constexpr int kUnits = X * kTileK / 4, kCopies = (kUnits + THREADS - 1) / THREADS;
  struct Unit {
    int line, i, place;
  };
  // Unit `index` of `width` elements.
  __device__ __forceinline__ Unit unit(int index, int width) const {
    const int in_line = (along_k_ ? kTileK : X) / width;
    const int line = index / in_line, i = index % in_line * width;
    return {line, i, along_k_ ? place_along_k(line, i) : line * PITCH + i};
  }

  // The units of a thread lie at equal distances: the swizzle repeats after 8 lines.
  __device__ __forceinline__ void copy_whole(float* tile) const {
    const float* p = next_;
    if (kUnits < THREADS && int(threadIdx.x) >= kUnits) return;
    FASTGEMM_UNROLL
    for (int i = 0; i < kCopies; ++i, p += line_step_) copy_async<16>(tile + to_ + i * to_step_, p);
  }
  template <int width>
  __device__ __forceinline__ void copy_part(float* tile) const {
    const int k_left = int(min(k_left_, int64_t(kTileK)));
    const int lines = along_k_ ? x_left_ : k_left, length = along_k_ ? k_left : x_left_;
    const int64_t stride = along_k_ ? from_.k_stride : from_.x_stride;
    FASTGEMM_NO_UNROLL
    for (int index = int(threadIdx.x); index < X * kTileK / width; index += THREADS) {
      const Unit u = unit(index, width);
      const int valid = u.line < lines ? max(0, min(length - u.i, width)) * 4 : 0;
      const float* p = data_ + u.line * line_stride_ + u.i * stride;
      copy_async<4 * width>(tile + u.place, valid ? p : from_.data, valid);
    }
  }

  const PanelSource<float>& from_;
  bool along_k_;
  int x_left_, to_, to_step_;
  int64_t k_left_, line_stride_, line_step_;
  const float *data_, *next_;
};

}  // namespace fastgemm::FASTGEMM_TARGET
