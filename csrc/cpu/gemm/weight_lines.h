// Lines of codes: streamed_weights reads a row of a packed weight line by line, and converts each line in
// registers.
//
// A kind of line has
//   X, Weights, Factors           an element of x; a vector of weights, and of x
//   kVector                       weights in a vector
//   kBytes, kCodes, kSteps        a line has kSteps vectors of weights
//   kAlongLanes                   whether lane i of vector s is code kSteps * i + s, not code kVector * s + i
//   suits(group_k)                whether a group is a number of lines, or a line is a number of groups
//   Group                         converts the codes of a line to weights; set() is called for each group, or
//                                 for each line that has several groups
//                                 PartGroup: sums of parts of k have scales (core/part_scales.h), codes none
//   kMostRows                     rows of the weight at once, so that their groups stay in registers
//   Line, read(codes), weights<step>(group, line)
//   factors(x), add(sums, weights, factors)
//   Remainder                     the kind of line for the weights at the end of a row that fill no line
#pragma once

#include "cpu/gemm/weight_vectors.h"

namespace fastgemm::FASTGEMM_ISA {
namespace weights {

// (code - subtracted) * scale + added
struct Affine {
  V subtracted, scale, added;
  FASTGEMM_INLINE V of(V code) const { return (code - subtracted) * scale + added; }
};

// Sixteen floats that codes of 4 bits select. Other bits of a code do not count.
#if defined(__AVX512F__)
struct Sixteen {
  V all;
  FASTGEMM_INLINE Sixteen() = default;
  FASTGEMM_INLINE Sixteen(const float* numbers, const Affine& group) : all(group.of(load<V>(numbers))) {}
  FASTGEMM_INLINE V at(Bits codes) const { return _mm512_maskz_permutexvar_ps(0xffff, (__m512i)codes, all); }
};
FASTGEMM_INLINE V pick(const float* from, Bits index) {
  return _mm512_maskz_permutexvar_ps(0xffff, (__m512i)index, load<V>(from));
}
#elif defined(__AVX2__)
struct Sixteen {
  V low, high;
  FASTGEMM_INLINE Sixteen() = default;
  FASTGEMM_INLINE Sixteen(const float* numbers, const Affine& group)
      : low(group.of(load<V>(numbers))), high(group.of(load<V>(numbers + N))) {}
  FASTGEMM_INLINE V at(Bits codes) const {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, (__m256i)codes),
                            _mm256_permutevar8x32_ps(high, (__m256i)codes), (__m256)(codes << 28));
  }
};
FASTGEMM_INLINE V pick(const float* from, Bits index) {
  return _mm256_permutevar8x32_ps(load<V>(from), (__m256i)index);
}
#else
struct Sixteen {
  float all[16];
  Sixteen() = default;
  FASTGEMM_INLINE Sixteen(const float* numbers, const Affine& group) {
    for (int i = 0; i < 16; i += N) store(all + i, group.of(load<V>(numbers + i)));
  }
  FASTGEMM_INLINE V at(Bits codes) const {
    V weights;
    for (int i = 0; i < N; ++i) weights[i] = all[codes[i] & 15];
    return weights;
  }
};
FASTGEMM_INLINE V pick(const float* from, Bits index) {
  V picked;
  for (int i = 0; i < N; ++i) picked[i] = from[index[i]];
  return picked;
}
#endif

// The numbers, scales and zeros of one row of a panel, from which Group::set() makes its groups. The arrays
// have N more elements than groups.
struct Scales {
  const float* numbers;  // the 16 numbers of a 4-bit format
  const float *scales, *subtracted, *added;
  Bits group_of_lane;  // within a line

  FASTGEMM_INLINE Affine of_group(int64_t g) const {
    return {broadcast<V>(subtracted[g]), broadcast<V>(scales[g]), broadcast<V>(added[g])};
  }
  FASTGEMM_INLINE Affine of_lanes(int64_t g) const {
    return {pick(subtracted + g, group_of_lane), pick(scales + g, group_of_lane),
            pick(added + g, group_of_lane)};
  }
};

// Weights in float32.
struct Floats {
  using X = float;
  using Weights = V;
  using Factors = V;
  using Remainder = struct Numbers;
  static constexpr int kVector = N;
  static FASTGEMM_INLINE V factors(const float* x) { return load<V>(x); }
  static FASTGEMM_INLINE V add(V sums, V weights, V x) { return sums + weights * x; }
};

// Codes of 4 bits: a line is a vector of 32-bit lanes with eight codes each. kWhole: groups are whole lines,
// and the table holds the weights of the group. Otherwise lanes have scales of their own.
template <bool kWhole>
struct Nibbles : Floats {
  static constexpr int kSteps = 8, kBytes = 4 * N, kCodes = 8 * N, kMostRows = kWhole ? 8 : 4;
  static constexpr bool kAlongLanes = true;
  static bool suits(int64_t group_k) {
    return kWhole ? group_k % kCodes == 0 : kCodes % group_k == 0 && group_k % kSteps == 0;
  }
  struct Group {
    Sixteen table;
    Affine affine;
    FASTGEMM_INLINE void set(const Scales& s, int64_t g) {
      if constexpr (kWhole) {
        table = Sixteen(s.numbers, s.of_group(g));
      } else {
        table = Sixteen(s.numbers, {V{}, broadcast<V>(1.0f), V{}});
        affine = s.of_lanes(g);
      }
    }
  };
  using Line = Bits;
  static FASTGEMM_INLINE Line read(const uint8_t* p) { return load<Bits>(p); }
  template <int STEP>
  static FASTGEMM_INLINE V weights(const Group& g, const Line& line) {
    const V numbers = g.table.at(line >> (4 * STEP));
    if constexpr (kWhole) return numbers;
    return g.affine.of(numbers);
  }
};

// The groups of codes that are numbers already: they hold a scale and a zero, or nothing.
struct AffineGroup {
  Affine affine;
  FASTGEMM_INLINE void set(const Scales& s, int64_t g) { affine = s.of_group(g); }
};
struct NoGroup {
  FASTGEMM_INLINE void set(const Scales&, int64_t) {}
};
struct PartGroup {
  float scale;
  FASTGEMM_INLINE void set(const Scales& s, int64_t g) { scale = s.scales[g]; }
};

// Codes of 8 bits: a line is 32 codes.
template <bool kFloating>
struct Bytes : Floats {
  static constexpr int kSteps = 32 / N, kBytes = 32, kCodes = 32, kMostRows = 4;
  static constexpr bool kAlongLanes = false;
  static bool suits(int64_t group_k) { return group_k % kCodes == 0; }
  using Group = AffineGroup;
  using Line = const uint8_t*;
  static FASTGEMM_INLINE Line read(const uint8_t* p) { return p; }
  template <int STEP>
  static FASTGEMM_INLINE V weights(const Group& g, const Line& line) {
    return g.affine.of(load_codes<kFloating>(line + N * STEP));
  }
};

// Weights that are numbers already: the end of a row, and groups that suit no other kind.
struct Numbers : Floats {
  static constexpr int kSteps = 1, kBytes = N * sizeof(float), kCodes = N;
  static constexpr bool kAlongLanes = false;
  using Group = NoGroup;
  using Line = V;
  static FASTGEMM_INLINE Line read(const uint8_t* p) { return load<V>(p); }
  template <int>
  static FASTGEMM_INLINE V weights(const Group&, const Line& line) {
    return line;
  }
};

}  // namespace weights
}  // namespace fastgemm::FASTGEMM_ISA
