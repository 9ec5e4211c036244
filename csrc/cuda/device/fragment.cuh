// Which element of a matrix each register of a lane holds in the instructions of the tensor cores: one
// definition for kernels, simulator and tests.
#pragma once

#include "cuda/device/numeric.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// float32 as tensor cores take it: they ignore the low 13 bits of the mantissa.
struct Tf32 {
  uint32_t bits;
};
// What tensor cores multiply: elements of T, float32 as tf32.
template <class T>
using TensorCoreElement = std::conditional_t<std::is_same_v<T, float>, Tf32, T>;
// The same where the operands change places.
template <class E, bool exchanged>
using ExchangedElements =
    std::conditional_t<exchanged && !std::is_same_v<typename ElementsOf<E>::A, typename ElementsOf<E>::B>,
                       MixedBytes<typename ElementsOf<E>::B, typename ElementsOf<E>::A>, E>;
template <>
struct AccumulatorOf<Tf32> {
  using type = float;
};

__device__ __forceinline__ float widen(Tf32 x) { return __uint_as_float(x.bits & ~0x1fffu); }

// To nearest, ties away from zero.
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

// mma with a tile a (M, K), b (K, 8), c (M, 8), elements of T in a and b. A lane holds kA, kB and kC elements
// of them, in order; elements of fewer than 4 bytes lie side by side in 32-bit registers, the first one
// lowest. Lanes form 8 groups of 4: the group is a row of a and c and a column of b, or 8 rows below; the
// place in the group is 4 bytes along k (one element where it has 4 or 8), or two columns of c. In bytes the
// fragments of all types of at most 4 bytes are the same, which is why ldmatrix loads all of them.
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

// wgmma with a tile a (64, K), c (64, N): each warp of the warpgroup has 16 rows. In them a, where it comes
// from registers, lies as in MmaLayout, and c as N / 8 of its tiles side by side, 4 registers each.
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

// ldmatrix and stmatrix: the two elements of the register that holds (its part of) a matrix of 8 x 8 16-bit
// elements, as it lies in shared memory, or transposed on the way.
__device__ __forceinline__ constexpr Position matrix_element(int lane, int i, bool transposed) {
  const int along = 2 * (lane % 4) + i;
  return transposed ? Position{along, lane / 4} : Position{lane / 4, along};
}

}  // namespace fastgemm::FASTGEMM_TARGET
