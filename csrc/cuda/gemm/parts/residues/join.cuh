// The last pass: joins residues to integers, and turns these into floating point.
//
//   x = sum of weight_i r_i - q P,    q = the sum / P, rounded
//
// For float64, the weights and P are divided into a high and a low half (Halves, moduli.h). The sum of the
// high halves is exact, also after q P is subtracted. The low halves have an error of some 2^-82 P, far below
// the rounding to integers. For int64 everything but q is computed modulo 2^64, and q is the rounded sum of
// r_i weight_i / P. float32 has so few moduli that P is below 2^64 and |x| below a third of P. So x is known
// from its value modulo 2^64, and float32 is accurate enough for q; it needs no sums in float64, which is
// slow on many GPUs.
#pragma once

#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/residues/multiply.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

// Joins residues to a float64.
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
  __device__ __forceinline__ double value(const Constants& c, double unscale_a, double unscale_b) const {
    const double quotient = rint(high_ * c.inverse_product);
    const double x = fma(-quotient, c.product.high, high_) + fma(-quotient, c.product.low, low_);
    return x * unscale_a * unscale_b;
  }

  // Converts a byte to double.
  __device__ __forceinline__ static double double_of(uint32_t byte) {
    constexpr uint32_t kHigh = 0x43300000u;  // 2^52
    return from_words(kHigh, byte) - 0x1p52;
  }

 private:
  double high_ = 0, low_ = 0;
};

// Joins residues to an int64.
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
  __device__ __forceinline__ uint64_t value(const Constants& c, double, double) const {
    return sum_ - uint64_t(int64_t(rint(quotient_))) * c.product;
  }

 private:
  uint64_t sum_ = 0;
  double quotient_ = 0;
};

// Joins residues to a float32.
class JoinedFloats {
 public:
  struct Constants {
    uint64_t weight[kFloat32System.moduli], product;
    float share[kFloat32System.moduli];
    const Scale *scales_a, *scales_b;
  };

  __device__ __forceinline__ void add(const Constants& c, int modulus, uint32_t residue) {
    sum_ += c.weight[modulus] * residue;
    constexpr uint32_t k2To23 = 0x4b000000u;
    quotient_ = fmaf(c.share[modulus], __uint_as_float(k2To23 | residue) - 0x1p23f, quotient_);
  }
  __device__ __forceinline__ float value(const Constants& c, double unscale_a, double unscale_b) const {
    const auto x = int64_t(sum_ - uint64_t(uint32_t(rintf(quotient_))) * c.product);
    return float(double(x) * unscale_a * unscale_b);
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
  bool pairs;  // two neighbours in a row of C can be stored together
  typename Joined<T>::Constants constants;
};

// A thread joins 16 elements: columns 8 j + {0, 1} for j below 4, of two rows that are 8 apart.
inline constexpr int kJoined = 16;
struct JoinedPlace {
  int64_t row, column;  // the place of the first element
  __device__ __forceinline__ JoinedPlace(int tile_row, int tile_column, int part) {
    const int thread = int(threadIdx.x);
    const Position at = WgmmaLayout<int8_t>::c(thread % 128, kJoined * part);
    row = int64_t{tile_row} * kTileM + thread / 128 * 64 + at.row;
    column = int64_t{tile_column} * kTileN + at.column;
  }
  __device__ __forceinline__ int64_t row_of(int i) const { return row + i / 2 % 2 * 8; }
  __device__ __forceinline__ int64_t column_of(int i) const { return column + i / 4 * 8 + i % 2; }
};

// Joins a thread's residues in memory to its elements. All scale factors are loaded before the first one is
// used.
template <class T>
__device__ __forceinline__ void join_residues(Accumulator<T> (&value)[kJoined], const JoinArguments<T>& g,
                                              const unsigned char* from, const JoinedPlace& place) {
  constexpr bool kScaled = std::is_floating_point_v<T>, kFew = std::is_same_v<T, float>;
  constexpr int kAtATime = kFew ? kFloat32System.moduli : 5;  // loads in flight together
  const int moduli = kFew ? kAtATime : g.moduli;
  Joined<T> joined[kJoined];
  FASTGEMM_NO_UNROLL
  for (int first = 0; first < moduli; first += kAtATime) {
    Unit unit[kAtATime];
    FASTGEMM_UNROLL
    for (int j = 0; j < kAtATime; ++j)
      if (kFew || first + j < moduli) unit[j] = load_vector<Unit>(from + j * kTileBytes);
    from += kAtATime * kTileBytes;
    FASTGEMM_UNROLL
    for (int j = 0; j < kAtATime; ++j) {
      if (!kFew && first + j >= moduli) break;
      FASTGEMM_UNROLL
      for (int i = 0; i < kJoined; ++i)
        joined[i].add(g.constants, kFew ? j : first + j, unit[j][i / 4] >> 8 * (i % 4) & 255);
    }
  }
  double rows[2] = {}, columns[8] = {};
  if constexpr (kScaled) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 2; ++i)
      rows[i] = g.constants.scales_a[min(place.row_of(2 * i), g.gemm.m - 1)].unscale;
    FASTGEMM_UNROLL
    for (int i = 0; i < 8; ++i)
      columns[i] = g.constants.scales_b[min(place.column_of(i / 2 * 4 + i % 2), g.gemm.n - 1)].unscale;
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < kJoined; ++i)
    value[i] = joined[i].value(g.constants, rows[i / 2 % 2], columns[i / 4 * 2 + i % 2]);
}

template <class T>
__device__ __forceinline__ void store_pair(const Result<T>& r, bool together, bool both, int64_t row,
                                           int64_t column, const Accumulator<T>& first,
                                           const Accumulator<T>& second) {
  using Out = typename Result<T>::Stored;
  if (!together || !both) {
    r.store(row, column, first);
    if (both) r.store(row, column + 1, second);
    return;
  }
  store_vector(static_cast<Out*>(r.out) + row * r.row_stride + column,
               Vector<Out, 2>{{round_to<Out>(r.template blend<Out>(row, column, first)),
                               round_to<Out>(r.template blend<Out>(row, column + 1, second))}});
}

// Applies an epilogue to float32 elements.
template <class T>
__device__ __forceinline__ void finish_joined(T (&value)[kJoined], const Epilogue& e, const Gemm<T>& g,
                                              const JoinedPlace& place) {
  FASTGEMM_UNROLL
  for (int i = 0; i < kJoined; ++i) {
    const int64_t row = place.row_of(i), column = place.column_of(i);
    if (row < g.m && column < g.n) value[i] = finished<T>(e, g.result, row, column, value[i]);
  }
}

// Each block joins one part of a tile. `Ending` is Epilogue or NoEpilogue.
template <class T, int triangle, class Ending>
__global__ void __launch_bounds__(kSumThreads)
    join_kernel(const __grid_constant__ JoinArguments<T> g, const __grid_constant__ Ending epilogue) {
  const int tile = int(blockIdx.x) / kParts, part = int(blockIdx.x) % kParts;
  const int tile_row = tile / g.tiles_n, tile_column = tile % g.tiles_n;
  if (is_above<triangle>(tile_row, tile_column) || !g.selection.takes(tile_row, tile_column)) return;
  const JoinedPlace place(tile_row, tile_column, part);
  Accumulator<T> value[kJoined];
  join_residues(value, g,
                g.sums + (int64_t{tile} * g.moduli * kParts + part) * kSumThreads * 16 + threadIdx.x * 16,
                place);
  Result<T> result = g.gemm.result;
  if constexpr (std::is_same_v<Ending, Epilogue>) {
    finish_joined(value, epilogue, g.gemm, place);
    result.alpha = 1, result.beta = 0;
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < kJoined; i += 2) {
    const int64_t row = place.row_of(i), column = place.column_of(i);
    if (row < g.gemm.m && column < g.gemm.n)
      store_pair(result, g.pairs, column + 1 < g.gemm.n, row, column, value[i], value[i + 1]);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
