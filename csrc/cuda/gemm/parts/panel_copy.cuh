// Copies the part of an operand that a block needs for BK values of k into shared memory, 16 bytes at a time.
// A panel (BK, WIDTH) is k-major for both A and B, so that a thread reads neighbours in `x` (m of A or n of
// B) as one vector. All threads call load() and store(); what lies outside the operand becomes 0.
//
//   A (m, k) | a b |  ->  panel | a c |        B (k, n) | e f |  ->  panel | e f |
//            | c d |            | b d |                 | g h |            | g h |
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T>
struct PanelSource {
  const T* data;
  int64_t x_stride, k_stride, x_extent, k_extent;
  bool vectors;  // takes_vectors()
};

template <class T, int WIDTH, int BK, int THREADS>
struct PanelCopy {
  static constexpr int kPitch = WIDTH + 4, kVector = kPer16Bytes<T>;
  static constexpr int kVectors = WIDTH * BK / kVector / THREADS;  // a thread's share
  static_assert(WIDTH * BK % (kVector * THREADS) == 0 && BK % (2 * kVector) == 0);
  Vector16<T> held[kVectors];
  bool along_k;
  // Where the thread's vector v begins. Along x a warp covers whole rows of the panel. Along k a pair of
  // lanes reads one 32-byte sector and 16 pairs stand side by side in x: element e of their fp32 vectors goes
  // to bank 16 * (lane % 2) + lane / 2 + constant (4 rows of pitch 132 are 16 banks), without conflicts.
  __device__ __forceinline__ int x_of(int v) const {
    const int index = v * THREADS + int(threadIdx.x);
    return along_k ? index / 2 % WIDTH : index % (WIDTH / kVector) * kVector;
  }
  __device__ __forceinline__ int k_of(int v) const {
    const int index = v * THREADS + int(threadIdx.x);
    return along_k ? (index / (2 * WIDTH) * 2 + index % 2) * kVector : index / (WIDTH / kVector);
  }
  // Reads the panel at (x0, k0) into registers; zeros outside the operand.
  __device__ __forceinline__ void load(const PanelSource<T>& from, int64_t x0, int64_t k0) {
    along_k = from.k_stride == 1;
    const int64_t step = along_k ? from.k_stride : from.x_stride;
    const int inside_x = inside(from.x_extent, x0, WIDTH), inside_k = inside(from.k_extent, k0, BK);
    FASTGEMM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int x = x_of(v), k = k_of(v);
      const int valid = along_k ? (x < inside_x ? inside_k - k : 0) : (k < inside_k ? inside_x - x : 0);
      const T* p = from.data + (x0 + x) * from.x_stride + (k0 + k) * from.k_stride;
      if (from.vectors && valid >= kVector) {
        held[v] = load_vector<Vector16<T>>(p);
      } else {
        FASTGEMM_UNROLL
        for (int e = 0; e < kVector; ++e) held[v][e] = e < valid ? p[e * step] : T{};
      }
    }
  }
  // Widens the loaded elements and writes them to shared memory.
  __device__ __forceinline__ void store(Accumulator<T>* panel /* (BK, WIDTH) */) const {
    using Acc = Accumulator<T>;
    FASTGEMM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      Acc* to = panel + k_of(v) * kPitch + x_of(v);
      if (along_k) {
        FASTGEMM_UNROLL
        for (int e = 0; e < kVector; ++e) to[e * kPitch] = widen(held[v][e]);
      } else {
        FASTGEMM_UNROLL
        for (int e = 0; e < kVector; e += kPer16Bytes<Acc>) {
          Vector16<Acc> wide;
          FASTGEMM_UNROLL
          for (int i = 0; i < kPer16Bytes<Acc>; ++i) wide[i] = widen(held[v][e + i]);
          store_vector(to + e, wide);
        }
      }
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
