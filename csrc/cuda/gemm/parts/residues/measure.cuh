// The first pass: sums the squares and the magnitudes of the elements for each row and chunk of k. The order
// is fixed, and sums are float64 for float32, too.
#pragma once

#include "cuda/gemm/parts/residues/operand.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

struct Measure {
  Norms sum{0, 0};

  __device__ __forceinline__ void add(double x) {
    sum.squares = fma(x, x, sum.squares);
    sum.magnitudes += fabs(x);
  }
  __device__ __forceinline__ void add(const Norms& x) {
    sum.squares += x.squares;
    sum.magnitudes += x.magnitudes;
  }
};

template <class T>
__device__ __forceinline__ void measure_along_k(const Source<T>& s, const BlockPlace& at) {
  constexpr int kWarps = kThreads / 32, kUnroll = 8;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int64_t first = at.chunk * kMeasured, chunks = (s.side.k + kMeasured - 1) / kMeasured;
  const int length = int(min(int64_t{kMeasured}, s.side.k - first));
  for (int64_t row = at.row + warp; row < min(at.row + kRows, s.side.side); row += kWarps) {
    const T* const from = s.side.data + row * s.side.side_stride + first * s.side.k_stride;
    Measure measure[2];
    FASTGEMM_NO_UNROLL
    for (int k = lane; k < length; k += 32 * kUnroll) {
      T x[kUnroll];
      FASTGEMM_UNROLL
      for (int i = 0; i < kUnroll; ++i)
        x[i] = k + 32 * i < length ? from[(k + 32 * i) * s.side.k_stride] : T(0);
      FASTGEMM_UNROLL
      for (int i = 0; i < kUnroll; ++i) measure[i % 2].add(x[i]);
    }
    Measure all = measure[0];
    all.add(measure[1].sum);
    FASTGEMM_UNROLL
    for (int lanes = 16; lanes > 0; lanes /= 2)
      all.add({__shfl_xor_sync(0xffffffffu, all.sum.squares, lanes),
               __shfl_xor_sync(0xffffffffu, all.sum.magnitudes, lanes)});
    if (lane == 0) s.norms[row * chunks + at.chunk] = all.sum;
  }
}

template <class T>
__device__ __forceinline__ void measure_along_side(const Source<T>& s, const BlockPlace& at) {
  constexpr int kWarps = kThreads / 32, kUnroll = 8;
  FASTGEMM_SHARED Measure sums[kWarps][kRows];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int64_t first = at.chunk * kMeasured, chunks = (s.side.k + kMeasured - 1) / kMeasured;
  const int length = int(min(int64_t{kMeasured}, s.side.k - first));
  const int64_t row = at.row + lane;
  const T* const from = s.side.data + row + first * s.side.k_stride;
  Measure measure[2];
  if (row < s.side.side) {
    FASTGEMM_NO_UNROLL
    for (int k = warp; k < length; k += kWarps * kUnroll) {
      T x[kUnroll];
      FASTGEMM_UNROLL
      for (int i = 0; i < kUnroll; ++i)
        x[i] = k + kWarps * i < length ? from[(k + kWarps * i) * s.side.k_stride] : T(0);
      FASTGEMM_UNROLL
      for (int i = 0; i < kUnroll; ++i) measure[i % 2].add(x[i]);
    }
  }
  measure[0].add(measure[1].sum);
  sums[warp][lane] = measure[0];
  __syncthreads();
  if (warp > 0 || row >= s.side.side) return;
  Measure all;
  FASTGEMM_UNROLL
  for (int i = 0; i < kWarps; ++i) all.add(sums[i][lane].sum);
  s.norms[row * chunks + at.chunk] = all.sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) measure_kernel(const __grid_constant__ Sources<T> sources) {
  with_source(sources, kMeasured, [](const Source<T>& s, const Source<T>&, const BlockPlace& at) {
    runs_along_side(s.side) ? measure_along_side(s, at) : measure_along_k(s, at);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
