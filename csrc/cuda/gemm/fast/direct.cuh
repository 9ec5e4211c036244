// Loads fragments of tensor-core instructions straight from global memory, for kernels that end before
// staging in shared memory would pay. A lane reads what it multiplies, at any stride. Whichever direction is
// contiguous in memory, a warp reads whole sectors. Products of float64 and float32 are summed in fp64.
#pragma once

#include "cuda/device/mma.cuh"
#include "cuda/device/sync.cuh"
#include "cuda/gemm/parts/sides.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// How elements of T are multiplied. A Value holds kPacked elements; it takes one or two registers of a
// fragment.
template <class T>
struct DirectType {
  using Value = uint32_t;
  using Sum = Accumulator<T>;
  static constexpr int kPacked = 4 / int(sizeof(T)), kDeep = 2;  // values along k in one instruction
};
template <>
struct DirectType<double> {
  using Value = double;
  using Sum = double;
  static constexpr int kPacked = 1, kDeep = 4;
};
// Products of float32 are exact in fp64, and on GPUs of data centers its tensor cores are as fast as fp32.
template <>
struct DirectType<float> {
  using Value = float;
  using Sum = double;
  static constexpr int kPacked = 1, kDeep = 4;
};

// A Side whose offsets inside a tile and a step fit in an Offset, which saves registers.
template <class T, class Offset>
struct DirectOperand {
  const T* data;
  Offset side_stride, k_stride;  // with `words`, k_stride is 1, and words along k are aligned and whole
  int side;
  int64_t batch_stride;
};
template <class Offset, class T>
DirectOperand<T, Offset> direct_operand(const Side<T>& s) {
  return {s.data, Offset(s.side_stride), Offset(s.k_stride), int(s.side), s.batch_stride};
}

// A lane's part of (8 * SLOTS, kDepth) elements. In each slot of 8 rows it has row lane / 4, and in that row
// the values lane % 4, lane % 4 + 4, and so on....
template <class T, class Offset, int SLOTS, int VALUES, bool words>
struct DirectFragment {
  using Type = DirectType<T>;
  using Value = typename Type::Value;
  static constexpr int kPacked = Type::kPacked, kDepth = 4 * kPacked * VALUES;

  // Begins at (row0, first_k) of a matrix. Rows past the last one read the last one.
  __device__ __forceinline__ DirectFragment(const DirectOperand<T, Offset>& o, int matrix, int row0,
                                            int first_k)
      : k_stride_(o.k_stride) {
    const int lane = int(threadIdx.x) % 32;
    const T* const from = o.data + matrix * o.batch_stride + int64_t(row0) * o.side_stride +
                          int64_t(first_k + lane % 4 * kPacked) * o.k_stride;
    FASTGEMM_UNROLL
    for (int s = 0; s < SLOTS; ++s)
      from_[s] = from + Offset(min(lane / 4 + 8 * s, o.side - 1 - row0)) * o.side_stride;
  }

  // Loads the values at the current place, with zeros from `left` elements on, and advances by `elements`
  // along k.
  __device__ __forceinline__ void load(Value (&to)[SLOTS][VALUES], int left, int elements) {
    FASTGEMM_UNROLL
    for (int s = 0; s < SLOTS; ++s) {
      FASTGEMM_UNROLL
      for (int v = 0; v < VALUES; ++v) to[s][v] = value(s, 4 * kPacked * v, left);
      from_[s] += elements * k_stride_;
    }
  }

 private:
  __device__ __forceinline__ Value value(int s, int k, int left) const {
    if constexpr (kPacked == 1) {
      return k < left ? FASTGEMM_LDG(from_[s] + k * k_stride_) : Value(0);
    } else if constexpr (words) {
      return k < left ? FASTGEMM_LDG(reinterpret_cast<const uint32_t*>(from_[s] + k)) : 0u;
    } else {
      using Bits = std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>;
      uint32_t word = 0;
      FASTGEMM_UNROLL
      for (int e = 0; e < kPacked; ++e) {
        const auto* p = reinterpret_cast<const Bits*>(from_[s] + (k + e) * k_stride_);
        word |= uint32_t(k + e < left ? FASTGEMM_LDG(p) : Bits(0)) << (8 * int(sizeof(T)) * e);
      }
      return word;
    }
  }

  const T* from_[SLOTS];
  Offset k_stride_;
};

// Computes d (16, 8) += a (16, K) * b (K, 8) in fp64, K = 4 * DEEP.
template <int DEEP>
__device__ __forceinline__ void multiply_f64(double (&d)[4], const double (&a)[2 * DEEP],
                                             const double (&b)[DEEP]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  FASTGEMM_UNROLL
  for (int half = 0; half < 2; ++half) {
    double sum[2] = {d[2 * half], d[2 * half + 1]};
    FASTGEMM_UNROLL
    for (int v = 0; v < DEEP; ++v) mma_f64<8, 4>(sum, {a[2 * v + half]}, {b[v]});
    d[2 * half] = sum[0], d[2 * half + 1] = sum[1];
  }
#else
  mma_f64<16, 4 * DEEP>(d, a, b);
#endif
}

// Adds a step's products to the sums of a warp, (16 * TILES_M, 8 * TILES_N).
template <class T, int TILES_M, int TILES_N, int VALUES>
__device__ __forceinline__ void multiply_direct(typename DirectType<T>::Sum (&sum)[TILES_M][TILES_N][4],
                                                const typename DirectType<T>::Value (&a)[2 * TILES_M][VALUES],
                                                const typename DirectType<T>::Value (&b)[TILES_N][VALUES]) {
  using Type = DirectType<T>;
  constexpr int kDeep = VALUES < Type::kDeep ? VALUES : Type::kDeep;
  static_assert(VALUES % kDeep == 0);
  FASTGEMM_UNROLL
  for (int v = 0; v < VALUES; v += kDeep) {
    FASTGEMM_UNROLL
    for (int i = 0; i < TILES_M; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < TILES_N; ++j) {
        if constexpr (Type::kPacked == 1) {
          double rows[2 * kDeep], columns[kDeep];
          FASTGEMM_UNROLL
          for (int e = 0; e < kDeep; ++e)
            rows[2 * e] = a[2 * i][v + e], rows[2 * e + 1] = a[2 * i + 1][v + e], columns[e] = b[j][v + e];
          multiply_f64<kDeep>(sum[i][j], rows, columns);
        } else {
          mma<T>(sum[i][j], {a[2 * i][v], a[2 * i + 1][v], a[2 * i][v + 1], a[2 * i + 1][v + 1]}, b[j][v],
                 b[j][v + 1]);
        }
      }
    }
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
