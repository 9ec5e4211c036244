// One kernel for each kind of instruction. Fragments are gathered from and scattered to matrices in global
// memory by the layouts that cuda/device states.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/device/wmma.cuh"
#include "matrix_cases.h"

namespace fastgemm::FASTGEMM_TARGET {

using test::Swap;

template <class T>
using Register = std::conditional_t<std::is_same_v<T, double>, double, uint32_t>;

__device__ __forceinline__ uint32_t bits_of(Half x) { return x.bits; }
__device__ __forceinline__ uint32_t bits_of(BFloat16 x) { return x.bits; }
__device__ __forceinline__ uint32_t bits_of(Tf32 x) { return x.bits; }
__device__ __forceinline__ uint32_t bits_of(int8_t x) { return uint8_t(x); }
__device__ __forceinline__ uint32_t bits_of(uint8_t x) { return x; }

// Registers whose elements lie at `place(element)` of a matrix with unit stride along rows or along columns.
template <class T, int N, class Place>
__device__ __forceinline__ void gather(Register<T> (&to)[N], const T* matrix, int row_stride,
                                       int column_stride, const Place& place) {
  const auto at = [&](int i) { return matrix[place(i).row * row_stride + place(i).column * column_stride]; };
  FASTGEMM_UNROLL
  for (int r = 0; r < N; ++r) {
    if constexpr (std::is_same_v<T, double>) {
      to[r] = at(r);
    } else {
      constexpr int kPacked = 4 / int(sizeof(T));
      to[r] = 0;
      FASTGEMM_UNROLL
      for (int e = 0; e < kPacked; ++e) to[r] |= bits_of(at(r * kPacked + e)) << (8 * int(sizeof(T)) * e);
    }
  }
}

template <class T, int N>
__device__ __forceinline__ void exchange(T (&registers)[N], const Swap& swap, Swap::Where where) {
  if (swap.where != where) return;
  FASTGEMM_UNROLL
  for (int i = 0; i < N; ++i) {
    FASTGEMM_UNROLL
    for (int j = 0; j < N; ++j) {
      if (i != swap.i || j != swap.j) continue;
      const T x = registers[i];
      registers[i] = registers[j], registers[j] = x;
    }
  }
}

// a (M, K) row-major, b (K, 8) column-major.
template <class T, int M, int K>
__global__ void mma_kernel(const T* a, const T* b, Accumulator<T>* c, Swap swap) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Layout = MmaLayout<T, M, K>;
  const int lane = int(threadIdx.x);
  Register<T> ra[Layout::kA / Layout::kPacked], rb[Layout::kB / Layout::kPacked];
  Accumulator<T> d[Layout::kC];
  gather(ra, a, K, 1, [&](int i) { return Layout::a(lane, i); });
  gather(rb, b, 1, K, [&](int i) { return Layout::b(lane, i); });
  const auto element = [&](int i) -> Accumulator<T>& {
    return c[Layout::c(lane, i).row * 8 + Layout::c(lane, i).column];
  };
  FASTGEMM_UNROLL
  for (int i = 0; i < Layout::kC; ++i) d[i] = element(i);
  exchange(ra, swap, Swap::a), exchange(rb, swap, Swap::b);
  if constexpr (std::is_same_v<T, double>)
    mma_f64<M, K>(d, ra, rb);
  else
    mma<T>(d, ra, rb[0], rb[1]);
  exchange(d, swap, Swap::d);
  FASTGEMM_UNROLL
  for (int i = 0; i < Layout::kC; ++i) element(i) = d[i];
#endif
}

// c (8 matrices, 8) = a, through shared memory: plain stores and ldmatrix, or stmatrix and plain loads.
template <int matrices, bool transposed, bool load>
__global__ void matrix_move_kernel(const uint16_t* a, uint16_t* c, Swap swap) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  FASTGEMM_DYNAMIC_SHARED(uint16_t, rows);  // (8 * matrices, 8)
  const int lane = int(threadIdx.x), row = lane % (8 * matrices);
  const auto place = [&](int matrix, int i) {
    const Position p = matrix_element(lane, i, transposed);
    return matrix * 64 + p.row * 8 + p.column;
  };
  uint32_t registers[matrices];
  if constexpr (load) {
    for (int i = lane; i < matrices * 64; i += 32) rows[i] = a[i];
    __syncwarp();
    load_matrices<matrices, transposed>(registers, rows + row * 8);
    exchange(registers, swap, Swap::a);
    FASTGEMM_UNROLL
    for (int r = 0; r < matrices; ++r)
      for (int i = 0; i < 2; ++i) c[place(r, i)] = uint16_t(registers[r] >> 16 * i);
  } else {
    FASTGEMM_UNROLL
    for (int r = 0; r < matrices; ++r) registers[r] = a[place(r, 0)] | uint32_t{a[place(r, 1)]} << 16;
    exchange(registers, swap, Swap::a);
    store_matrices<matrices, transposed>(rows + row * 8, registers);
    __syncwarp();
    for (int i = lane; i < matrices * 64; i += 32) c[i] = rows[i];
  }
#endif
}

template <class T, Order order_a, Order order_b, Order order_c>
__global__ void wmma_kernel(const typename WmmaShape<T>::Element* a, const typename WmmaShape<T>::Element* b,
                            Accumulator<T>* c) {
  using Shape = WmmaShape<T>;
  WmmaA<T, order_a> fa;
  WmmaB<T, order_b> fb;
  WmmaC<T> fc;
  wmma_fill(fc, Accumulator<T>(1));
  wmma_load(fa, a, order_a == Order::row_major ? Shape::kK : Shape::kM);
  wmma_load(fb, b, order_b == Order::row_major ? Shape::kN : Shape::kK);
  wmma_multiply(fc, fa, fb);
  for (int i = 0; i < fc.size(); ++i) fc[i] -= 1;
  wmma_store<order_c>(c, fc, Shape::kN);
}

// A box that TMA swizzles on the way to shared memory, read by the formula that kernels use; or the way back.
// The matrix (rows, span) is smaller than the box of 64 rows.
template <Swizzle swizzle, bool load>
__global__ void box_kernel(const __grid_constant__ TensorMap map, const uint16_t* a, uint16_t* c, int rows) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(unsigned char, box);  // (64, span)
  FASTGEMM_SHARED Barrier landed;
  constexpr int kBytes = 64 * kBoxWidth<swizzle>, kColumns = kBoxWidth<swizzle> / 2;
  const auto element = [&](int i) -> uint16_t& {
    return *reinterpret_cast<uint16_t*>(box + swizzled<swizzle>(uint32_t(2 * i)));
  };
  if constexpr (load) {
    if (threadIdx.x == 0) {
      init_barrier(&landed, 1);
      fence_barrier_init();
      arrive_expecting(&landed, kBytes);
      load_box(box, &map, &landed, 0, 0, 0);
    }
    __syncthreads();
    wait_phase(&landed, 0);
    for (int i = int(threadIdx.x); i < rows * kColumns; i += int(blockDim.x)) c[i] = element(i);
  } else {
    for (int i = int(threadIdx.x); i < 64 * kColumns; i += int(blockDim.x))
      element(i) = i < rows * kColumns ? a[i] : uint16_t(0);
    fence_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
      store_box(&map, box, 0, 0, 0);
      commit_stores();
      wait_stores<0>();
    }
  }
#endif
}

}  // namespace fastgemm::FASTGEMM_TARGET
