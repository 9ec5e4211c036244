// The third pass: multiplies rows by their powers of two, rounds them to integers, and stores the integers'
// residues as bytes.
//
// An integer y is held in a double, for float32 too. Additions of a large constant divide it into words of a
// sign and 30 bits, each in the low word of a double:
//
//   y = word 0 (+ 2^31 word 1 (+ 2^62 word 2))
//
// Each word is four signed bytes. Its residue is the dot product of these bytes with the residues of their
// place values. An int64 has two words. The sum of a number's dot products is below 2^18. It is reduced
// modulo p in float32: adding a large constant rounds the quotient to an integer.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/residues/operand.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

// The low word of y + kBytes is y + 0x80808080. Each of its bytes is 128 more than the signed byte of y.
inline constexpr uint32_t kSigns = 0x80808080u;
inline constexpr double kBytes = 0x1.8p52 + double(kSigns);
__device__ __forceinline__ uint32_t signed_bytes(double y_and_bytes) {
  return low_word(y_and_bytes) ^ kSigns;
}

template <int words>
struct Integer {
  uint32_t word[words];
};
template <int words>
__device__ __forceinline__ Integer<words> integer(double y) {
  constexpr double kUnit = double(int64_t{1} << kWordBits);
  Integer<words> x;
  double unit = words == 3 ? kUnit * kUnit : kUnit;
  FASTGEMM_UNROLL
  for (int i = words - 1; i > 0; --i, unit /= kUnit) {
    const double upper = fma(y, 1 / unit, kBytes);
    x.word[i] = signed_bytes(upper);
    y = fma(upper - kBytes, -unit, y);
  }
  x.word[0] = signed_bytes(y + kBytes);
  return x;
}

// Modulo 2^64: the words may stand for y + 2^64 or y - 2^64, which changes the product by a multiple of 2^64.
__device__ __forceinline__ Integer<2> integer(int64_t y) {
  const uint64_t bytes = uint64_t(y) + (uint64_t{kSigns} << 32 | kSigns);
  return {uint32_t(bytes) ^ kSigns, uint32_t(bytes >> 32) ^ kSigns};
}

// Computes the residue of an integer, symmetric about 0, in the lowest byte.
template <int words>
struct ToResidue {
  uint32_t places[words];
  float p, inverse_p;

  __device__ __forceinline__ ToResidue(const System& s, int i) : p(s.p[i]), inverse_p(s.inverse_p[i]) {
    FASTGEMM_UNROLL
    for (int j = 0; j < words; ++j) places[j] = s.places[i][j];
  }
  __device__ __forceinline__ uint32_t of(const Integer<words>& y) const {
    constexpr float kInteger = 0x1.8p23f;  // floats within 2^22 of it are integers: the lowest bits
    uint32_t bits = __float_as_uint(kInteger);
    FASTGEMM_UNROLL
    for (int i = 0; i < words; ++i) bits = dot4(y.word[i], places[i], bits);
    const float sum = __uint_as_float(bits);
    const float quotient = fmaf(sum - kInteger, inverse_p, kInteger) - kInteger;
    return __float_as_uint(fmaf(quotient, -p, sum));
  }
};

// Packs the lowest bytes of four words into one word.
__device__ __forceinline__ uint32_t pack(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// kRows x kCutK elements in shared memory with k along rows. Units of two elements are swizzled among 8
// places, so that bank conflicts are at most twofold: for writes along either index, and for reads of 16
// elements per thread.
template <class T>
struct Staged {
  static constexpr int kPitch = kCutK + 2;
  T element[kRows][kPitch];

  __device__ __forceinline__ T& at(int row, int k) {
    const int unit = k / 2;
    return element[row][2 * (unit ^ unit / 8 % 8) + k % 2];
  }
};

// The elements of a row that a thread cuts, and the number of threads for a row.
inline constexpr int kEach = kRows * kCutK / kThreads, kUnits = kCutK / kEach;

// Whether all elements that a block cuts lie inside the operand.
template <class T>
__device__ __forceinline__ bool is_inside(const Source<T>& s, const BlockPlace& at) {
  return at.row + kRows <= s.side.side && (at.chunk + 1) * kCutK <= s.side.k;
}

template <class T>
__device__ __forceinline__ void stage(Staged<T>& staged, const Source<T>& s, const BlockPlace& at) {
  const int64_t first = at.chunk * kCutK;
  const bool along_side = runs_along_side(s.side);
  const int thread = int(threadIdx.x);
  T x[kEach];
  const auto row_of = [&](int i) { return along_side ? thread % kRows : (i * kThreads + thread) / kCutK; };
  const auto k_of = [&](int i) { return along_side ? (i * kThreads + thread) / kRows : thread % kCutK; };
  const T* const from =
      s.side.data + (at.row + row_of(0)) * s.side.side_stride + (first + k_of(0)) * s.side.k_stride;
  const int64_t step =
      along_side ? kThreads / kRows * s.side.k_stride : kThreads / kCutK * s.side.side_stride;
  if (is_inside(s, at)) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) x[i] = from[i * step];
  } else {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i)
      x[i] = at.row + row_of(i) < s.side.side && first + k_of(i) < s.side.k ? from[i * step] : T(0);
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < kEach; ++i) staged.at(row_of(i), k_of(i)) = x[i];
}

// Loads a thread's elements; neighbouring threads are neighbours along k. Aligned elements are loaded as
// vectors straight from the operand, others through shared memory.
template <class T>
__device__ __forceinline__ void load(T (&x)[kEach], Staged<T>& staged, const Source<T>& s,
                                     const BlockPlace& at) {
  const int row = int(threadIdx.x) / kUnits, k = int(threadIdx.x) % kUnits * kEach;
  if (s.takes_vectors && is_inside(s, at)) {
    constexpr int kPerVector = 16 / int(sizeof(T));
    const T* const from = s.side.data + (at.row + row) * s.side.side_stride + at.chunk * kCutK + k;
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; i += kPerVector) {
      const auto vector = load_vector<Vector16<T>>(from + i);
      FASTGEMM_UNROLL
      for (int j = 0; j < kPerVector; ++j) x[i + j] = vector[j];
    }
    return;
  }
  stage(staged, s, at);
  __syncthreads();
  FASTGEMM_UNROLL
  for (int i = 0; i < kEach; ++i) x[i] = staged.at(row, k + i);
}

// A byte for each threshold: 1 if |y| is not below it.
__device__ __forceinline__ uint32_t thresholds_below(double y, const Scale& scale) {
  const uint32_t magnitude = high_word(y) & 0x7fffffffu;
  uint32_t below = 0;
  FASTGEMM_UNROLL
  for (int j = 0; j < kThresholds; ++j) below |= uint32_t(magnitude >= scale.threshold[j]) << 8 * j;
  return below;
}

// Whether any tile with these rows may be computed by residues, in this panel of C or in a later one.
template <class T>
__device__ __forceinline__ bool needed(const Source<T>& s, const Source<T>& other, const BlockPlace& at) {
  return s.useful[at.row / s.group] && (s.reused || any_useful<kThreads>(other));
}

template <class T, bool judged, int words>
__global__ void __launch_bounds__(kThreads)
    cut_kernel(const __grid_constant__ Sources<T> sources, const __grid_constant__ System system) {
  FASTGEMM_SHARED Staged<T> staged;
  constexpr bool kScaled = std::is_floating_point_v<T>;
  with_source(sources, kCutK, [&](const Source<T>& s, const Source<T>& other, const BlockPlace& at) {
    if constexpr (kScaled) {
      if (!sources.all && !needed(s, other, at)) return;
    }
    T x[kEach];
    load(x, staged, s, at);
    const int thread = int(threadIdx.x);
    const int64_t row = at.row + thread / kUnits, k = at.chunk * kCutK + thread % kUnits * kEach;
    const bool inside = row < s.side.side;
    const Scale scale = kScaled && inside ? s.scales[row] : Scale{};
    Integer<words> integers[kEach];
    uint32_t above = 0;
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if constexpr (kScaled) {
        const double y = double(x[i]) * scale.scale;
        integers[i] = integer<words>(y);
        if constexpr (judged) above += thresholds_below(y, scale);
      } else {
        integers[i] = integer(x[i]);
      }
    }
    if constexpr (judged) {
      FASTGEMM_UNROLL
      for (int lanes = kUnits / 2; lanes > 0; lanes /= 2) above += __shfl_xor_sync(0xffffffffu, above, lanes);
      const int64_t chunks = (s.side.k + kCutK - 1) / kCutK;
      if (inside && thread % kUnits == 0) s.shares[row * chunks + at.chunk] = above;
    }
    const int64_t padded = s.padded_k();
    if (!inside || k >= padded) return;
    int8_t* to = s.residues + row * padded + k;
    FASTGEMM_NO_UNROLL
    for (int m = 0; m < system.moduli; ++m) {
      const ToResidue<words> residue(system, m);
      Unit unit;
      FASTGEMM_UNROLL
      for (int i = 0; i < 4; ++i)
        unit[i] = pack(residue.of(integers[4 * i]), residue.of(integers[4 * i + 1]),
                       residue.of(integers[4 * i + 2]), residue.of(integers[4 * i + 3]));
      store_vector(to, unit);
      to += s.side.side * padded;
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
