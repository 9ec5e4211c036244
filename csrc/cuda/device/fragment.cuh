// Which element of a matrix each register of a lane holds in tensor-core instructions: one definition for
// kernels, simulator and tests.
#pragma once

#include "cuda/device/numeric.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// float32 as tensor cores read it: they ignore the low 13 bits of the mantissa.
struct Tf32 {
  uint32_t bits;
};
// The elements that tensor cores multiply for a problem of T: float32 as tf32, others unchanged.
template <class T>
using TensorCoreElement = std::conditional_t<std::is_same_v<T, float>, Tf32, T>;
// The same if A and B are exchanged.
template <class E, bool exchanged>
using ExchangedElements =
    std::conditional_t<exchanged && !std::is_same_v<typename ElementsOf<E>::A, typename ElementsOf<E>::B>,
                       MixedBytes<typename ElementsOf<E>::B, typename ElementsOf<E>::A>, E>;
template <>
struct AccumulatorOf<Tf32> {
  using type = float;
};

__device__ __forceinline__ float widen(Tf32 x) { return __uint_as_float(x.bits & ~0x1fffu); }

// Rounds to nearest, ties away from zero.
__device__ __forceinline__ Tf32 to_tf32(float x) {
#if defined(__CUDACC__)
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return {bits};
#else
  const uint32_t bits = __float_as_uint(x);
  return {std::isfinite(x) ? (bits + 0x1000u) & ~0x1fffu : bits};
#endif
}

struct Position {
  int row, column;
};

// The layout of mma with tiles a (M, K), b (K, 8) and c (M, 8); a and b have elements of T. A lane holds kA,
// kB and kC elements of them, in order. Elements of fewer than 4 bytes lie side by side in 32-bit registers,
// the first one lowest. Lanes form 8 groups of 4. The number of the group is the row of a and c (or the row
// minus 8) and the column of b. The place in the group is 4 bytes along k (one element if it has 4 or 8
// bytes), or two columns of c. Counted in bytes, the fragments of all types of at most 4 bytes are the same,
// so ldmatrix loads all of them.
template <class T, int M = 16, int K = 32 / int(sizeof(T))>
struct MmaLayout {
  static constexpr int kM = M, kN = 8, kK = K;
  static constexpr int kA = M * K / 32, kB = K * 8 / 32, kC = M * 8 / 32;
  static constexpr int kPacked = sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1;
  static_assert((M == 8 || M == 16) && K % (4 * kPacked) == 0);

  __device__ __forceinline__ static constexpr Position a(int lane, int i) {
    const int r = i / kPacked;  // register: down first, then along k
    return {lane / 4 + 8 * (r % (M / 8)), kPacked * (lane % 4 + 4 * (r / (M / 8))) + i % kPacked};
  }
  __device__ __forceinline__ static constexpr Position b(int lane, int i) {
    return {kPacked * (lane % 4 + 4 * (i / kPacked)) + i % kPacked, lane / 4};
  }
  __device__ __forceinline__ static constexpr Position c(int lane, int i) {
    return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2};
  }
};

// The layout of wgmma with tiles a (64, K) and c (64, N). Each warp of the warpgroup has 16 rows. In these, a
// (if it comes from registers) has the layout of MmaLayout, and c is N / 8 of MmaLayout's tiles side by side,
// 4 registers each.
template <class T>
struct WgmmaLayout {
  static constexpr int kM = 64, kK = 32 / int(sizeof(T));

  __device__ __forceinline__ static constexpr Position a(int thread, int i) {
    const Position p = MmaLayout<T>::a(thread % 32, i);
    return {16 * (thread / 32) + p.row, p.column};
  }
  __device__ __forceinline__ static constexpr Position c(int thread, int i) {
    const Position p = MmaLayout<T>::c(thread % 32, i % 4);
    return {16 * (thread / 32) + p.row, 8 * (i / 4) + p.column};
  }
};

// ldmatrix and stmatrix: the position of element i (of two) in a lane's register for a matrix of 8 x 8 16-bit
// elements, which is stored as in shared memory or transposed.
__device__ __forceinline__ constexpr Position matrix_element(int lane, int i, bool transposed) {
  const int along = 2 * (lane % 4) + i;
  return transposed ? Position{along, lane / 4} : Position{lane / 4, along};
}

}  // namespace fastgemm::FASTGEMM_TARGET
