// The last pass: integers from their residues, and floating point from integers.
//
//   x = sum of weight_i r_i - q P,    q = the sum / P, rounded
//
// For float64 weights and P are halves (moduli.h): the high halves' sum is exact, and so is what q P leaves
// of it; the low ones err by some 2^-82 P, which is far below the rounding to integers. For int64 all but q
// is modulo 2^64, and q is the rounded sum of the shares weight_i / P that the residues have. float32 has
// so few moduli that P is below 2^64 and |x| below P / 3: then x itself is known modulo 2^64, and shares in
// float32 are good enough, so that it takes no float64 sums, of which many GPUs have few.
#pragma once

#include "cuda/gemm/parts/residues/multiply.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

// Residues of float64, joined.
class JoinedDoubles {
 public:
  struct Constants {
    Halves weight[kMostModuli], product;
    double inverse_product;
    const Scale *scales_a, *scales_b;
  };

  __device__ __forceinline__ void add(const Constants& c, int modulus, uint32_t residue) {
    const double r = double_of(residue);
    high_ = fma(c.weight[modulus].high, r, high_);
    low_ = fma(c.weight[modulus].low, r, low_);
  }
  __device__ __forceinline__ double value(const Constants& c, int64_t row, int64_t column) const {
    const double quotient = rint(high_ * c.inverse_product);
    const double x = fma(-quotient, c.product.high, high_) + fma(-quotient, c.product.low, low_);
    return x * c.scales_a[row].unscale * c.scales_b[column].unscale;
  }

  // A byte as a double.
  __device__ __forceinline__ static double double_of(uint32_t byte) {
    constexpr uint32_t kHigh = 0x43300000u;  // 2^52
    return from_words(kHigh, byte) - 0x1p52;
  }

 private:
  double high_ = 0, low_ = 0;
};

// Residues of int64, joined.
class JoinedIntegers {
 public:
  struct Constants {
    uint64_t weight[kMostModuli], product;
    double share[kMostModuli];
  };

  __device__ __forceinline__ void add(const Constants& c, int modulus, uint32_t residue) {
    sum_ += c.weight[modulus] * residue;
    quotient_ = fma(c.share[modulus], JoinedDoubles::double_of(residue), quotient_);
  }
  __device__ __forceinline__ uint64_t value(const Constants& c, int64_t, int64_t) const {
    return sum_ - uint64_t(int64_t(rint(quotient_))) * c.product;
  }

 private:
  uint64_t sum_ = 0;
  double quotient_ = 0;
};

// Residues of float32, joined.
class JoinedFloats {
 public:
  struct Constants {
    uint64_t weight[kFloat32System.moduli], product;
    float share[kFloat32System.moduli];
    const Scale *scales_a, *scales_b;
  };

  __device__ __forceinline__ void add(const Constants& c, int modulus, uint32_t residue) {
    sum_ += c.weight[modulus] * residue;
    quotient_ = fmaf(c.share[modulus], float(residue), quotient_);
  }
  __device__ __forceinline__ float value(const Constants& c, int64_t row, int64_t column) const {
    const auto x = int64_t(sum_ - uint64_t(int64_t(rintf(quotient_))) * c.product);
    return float(double(x) * c.scales_a[row].unscale * c.scales_b[column].unscale);
  }

 private:
  uint64_t sum_ = 0;
  float quotient_ = 0;
};

template <class T>
struct JoinedOf {
  using type = JoinedDoubles;
};
template <>
struct JoinedOf<int64_t> {
  using type = JoinedIntegers;
};
template <>
struct JoinedOf<float> {
  using type = JoinedFloats;
};
template <class T>
using Joined = typename JoinedOf<T>::type;

template <class T>
struct JoinArguments {
  Gemm<T> gemm;
  Selection selection;
  const unsigned char* sums;
  int tiles_n, moduli;
  typename Joined<T>::Constants constants;
};

// A block joins one part of a tile: 16 elements a thread.
template <class T>
__global__ void __launch_bounds__(kSumThreads) join_kernel(const __grid_constant__ JoinArguments<T> g) {
  const int tile = int(blockIdx.x) / kParts, part = int(blockIdx.x) % kParts, thread = int(threadIdx.x);
  const int tile_row = tile / g.tiles_n, tile_column = tile % g.tiles_n;
  if (!g.selection.takes(tile_row, tile_column)) return;
  constexpr int kEach = 16, kAtATime = 5;  // loads that a thread waits for together
  Joined<T> joined[kEach];
  const unsigned char* from =
      g.sums + (int64_t{tile} * g.moduli * kParts + part) * kSumThreads * 16 + thread * 16;
  FASTGEMM_NO_UNROLL
  for (int first = 0; first < g.moduli; first += kAtATime) {
    Unit unit[kAtATime];
    FASTGEMM_UNROLL
    for (int j = 0; j < kAtATime; ++j)
      if (first + j < g.moduli) unit[j] = load_vector<Unit>(from + j * kTileBytes);
    from += kAtATime * kTileBytes;
    FASTGEMM_UNROLL
    for (int j = 0; j < kAtATime; ++j) {
      if (first + j >= g.moduli) break;
      FASTGEMM_UNROLL
      for (int i = 0; i < kEach; ++i)
        joined[i].add(g.constants, first + j, unit[j][i / 4] >> 8 * (i % 4) & 255);
    }
  }
  const int64_t row0 = int64_t{tile_row} * kTileM + thread / 128 * 64,
                column0 = int64_t{tile_column} * kTileN;
  FASTGEMM_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const Position at = WgmmaLayout<int8_t>::c(thread % 128, kEach * part + i);
    const int64_t row = row0 + at.row, column = column0 + at.column;
    if (row >= g.gemm.m || column >= g.gemm.n) continue;
    g.gemm.result.store(row, column, joined[i].value(g.constants, row, column));
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
