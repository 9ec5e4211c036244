// Tiles of operands of 4-byte elements, in shared memory as they lie in global memory. RawTileCopy copies
// them by cp.async. place_along_k() or a padded pitch says where a lane finds the elements that it needs for
// wgmma.
//
//   runs along k:  x lines of 32 words, their units swizzled     runs along x:  32 lines of X words, padded
//        k -->                                                        x -->
//     x |u0|u1|u2|u3|u4|u5|u6|u7|                                  k |x0 x1 x2 ....... |pad|
//     | |u4|u5|u6|u7|u0|u1|u2|u3|                                  | |x0 x1 x2 ....... |pad|
//
// An instruction may take any 16 values of k in any order, as long as both operands take the same. So lane
// (r, q), with r = lane / 4 and q = lane % 4, chooses what it puts into its k slots 2q, 2q + 1, 2q + 8 and 2q
// + 9: four neighbours along k where the rows run along k (one 16-byte load), and every fourth value of k
// where they run across.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/gemm/parts/panel_copy.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kTileK = 32;  // values of k in a stage, a line of 128 bytes

__device__ __forceinline__ int lane_row() { return int(threadIdx.x) % 32 / 4; }
__device__ __forceinline__ int lane_quad() { return int(threadIdx.x) % 4; }

// Where element (x, k) lies in a tile that runs along k. Lines are 8 units of 16 bytes. They are swizzled so
// that neither the lanes' 16-byte reads (r = 0, 1; q = 0 .. 3) nor their scalar reads (r = 0 .. 7) have bank
// conflicts.
__device__ __forceinline__ int place_along_k(int x, int k) {
  return x * kTileK + ((k / 4 ^ (x % 2 * 4 | x / 2 % 4)) * 4 | k % 4);
}
// In a tile that runs along x, lines have X words, padded to `banks` more than a multiple of 32.
template <int X, int banks>
inline constexpr int kLinePitch = X + (banks + 32 - X % 32) % 32;

// Copies the tiles (X, kTileK) of an operand, one after another along k, with zeros outside the operand. All
// THREADS threads call it. A thread copies one unit of every few lines, always at the same place in the line.
// A unit has 16 bytes, or 4 bytes where 16 may be unaligned.
template <class T, int X, int PITCH, int THREADS>
class RawTileCopy {
  static_assert(sizeof(T) == 4 && THREADS % 64 == 0);  // whole turns of the swizzle

 public:
  __device__ __forceinline__ RawTileCopy(const PanelSource<T>& from, int64_t x0, int64_t k0)
      : vectors_(from.vectors),
        along_k_(from.k_stride == 1),
        x_left_(inside(from.x_extent, x0, X)),
        k_left_(from.k_extent - k0),
        stage_step_(kTileK * from.k_stride) {
    const int width = vectors_ ? 4 : 1, in_line = (along_k_ ? kTileK : X) / width;
    const int64_t stride = along_k_ ? from.k_stride : from.x_stride;
    const int64_t line_stride = along_k_ ? from.x_stride : from.k_stride;
    line_ = int(threadIdx.x) / in_line, i_ = int(threadIdx.x) % in_line * width;
    lines_ = THREADS / in_line;
    from_ = from.data + x0 * from.x_stride + k0 * from.k_stride + line_ * line_stride + i_ * stride;
    line_step_ = lines_ * line_stride;
    to_ = along_k_ ? place_along_k(line_, i_) : line_ * PITCH + i_;
    to_step_ = lines_ * (along_k_ ? kTileK : PITCH);
  }

  __device__ __forceinline__ void copy(T* tile) {
    if (k_left_ <= 0) return;
    if (vectors_)
      copy_units<4>(tile);
    else
      copy_units<1>(tile);
    from_ += stage_step_;
    k_left_ -= kTileK;
  }

 private:
  template <int width>
  __device__ __forceinline__ void copy_units(T* tile) const {
    constexpr int kUnits = X * kTileK / width, kCopies = (kUnits + THREADS - 1) / THREADS;
    if (kUnits < THREADS && int(threadIdx.x) >= kUnits) return;
    const int k_left = int(min(k_left_, int64_t(kTileK)));
    const int lines = along_k_ ? x_left_ : k_left, length = along_k_ ? k_left : x_left_;
    const int valid = max(0, min(length - i_, width)) * 4;
    const T* p = from_;
    if (width > 1 && lines >= (along_k_ ? X : kTileK) && length >= (along_k_ ? kTileK : X)) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kCopies; ++i, p += line_step_) copy_async<4 * width>(tile + to_ + i * to_step_, p);
      return;
    }
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < kCopies; ++i, p += line_step_) {
      const int line = line_ + i * lines_;
      const int to = width == 1 && along_k_ ? place_along_k(line, i_) : to_ + i * to_step_;
      copy_async<4 * width>(tile + to, p, line < lines ? valid : 0);
    }
  }

  bool vectors_, along_k_;
  int x_left_, line_, i_, lines_, to_, to_step_;
  int64_t k_left_, stage_step_, line_step_;
  const T* from_;
};

}  // namespace fastgemm::FASTGEMM_TARGET
