// Fragments of a unit of a packed weight that lies in shared memory as it does in device memory. Contract:
// convert() returns the fragments that tensor cores multiply. They hold the codes as numbers of T, minus
// their zeros. Scaled says whether the scales are applied as well.
//
//   words of codes  ->  numbers of T, two in a register  ->  minus zeros (exact)  ->  times scales (rounded)
//
// A thread owns rows r and r + 8. The scales of both rows are read as one pair. Two byte permutations copy
// each scale into both halves of a register, so that one instruction scales two numbers.
#pragma once

#include "core/problem.h"
#include "cuda/gemm/packed/fragments.cuh"
#include "cuda/gemm/packed/unit_scales.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Where the scales are applied:
//   rows      at the end: they serve whole rows
//   units     to the float32 sums of a unit; a group has one or more units
//   halves    to the float32 sums of half a unit: for nf4, because its rounded numbers would be rounded again
//   weights   to the weights before they are multiplied, rounded to the type of x; zeros may be added
// Some kernels choose at run time, by WeightUnits:
//   sums      one of the first three
//   any       `rows` or `weights`
//   pairs     the same, but scales of weights must be in_pairs; this takes less registers
enum class Scaled { rows, units, halves, weights, sums, any, pairs };

// Scales of e4m3 reach 448, so they cannot be multiplied by all of kE2m1Factor. The sums are multiplied by
// the rest.
template <class T>
inline constexpr float kOfE4m3 = kIsBFloat16<T> ? 0x1p117f : 0x1p7f;

// The kernels' arguments that describe the weight. Made on the host.
struct WeightUnits {
  const unsigned char* units;
  PackedWeight weight;
  UnitScales scales;
  bool at_end;    // scales serve whole rows, and multiply the sums
  bool in_pairs;  // UnitScales::paired()
  float of_sums;  // a further factor of the sums, beside the scales
  int n, unit_bytes, row_units, column_units;

  WeightUnits() = default;
  template <class T>
  WeightUnits(const GemmProblem& p, T /* the type of x */)
      : units(static_cast<const unsigned char*>(p.b.data)),
        weight(p.packed),
        scales(p.packed, p.k),
        at_end(scales.by_rows && weight.zero != Zero::added),
        in_pairs(scales.template paired<T>(weight.code)),
        of_sums(in_pairs && weight.scale == ScaleType::e4m3 ? kE2m1Factor<T> / kOfE4m3<T> : 1.0f),
        n(int(p.n)),
        unit_bytes(packed::unit_bytes(weight, p.k)),
        row_units(int(packed::blocks(p.n, packed::kRows))),
        column_units(int(packed::blocks(p.k, packed::kColumns))) {}

  // The scales of two whole rows: of `row` and of row + 8.
  __device__ __forceinline__ RowPair row_scales(int row) const {
    const auto* const all = static_cast<const float*>(weight.scales);
    return {all[min(row, n - 1)], all[min(row + 8, n - 1)]};
  }
  __device__ __forceinline__ RowPair row_zeros(int row) const {
    return {row_zero(weight, min(row, n - 1)), row_zero(weight, min(row + 8, n - 1))};
  }
};

// STEPS k16 steps are converted at a time. PLAIN: there are no zeros, and scales of units come in pairs;
// nothing is decided at run time then.
template <class T, Code code, Scaled scaled, int STEPS, bool PLAIN = false>
class UnitFragments {
  static constexpr bool kIntegers = code == Code::int4 || code == Code::int8;
  static constexpr bool kWeights =
      scaled == Scaled::weights || scaled == Scaled::pairs || scaled == Scaled::any;
  static constexpr bool kPlaces = kWeights && code == Code::e2m1;  // scales have kE2m1Factor
  static constexpr bool kTable = code == Code::nf4 && scaled != Scaled::sums;
  static constexpr bool kDecides = scaled == Scaled::sums || scaled == Scaled::any || scaled == Scaled::pairs;

 public:
  using Fragments = uint32_t[STEPS][4];
  static constexpr int kStepBytes = 128 * 16 / kReadSteps<code>;  // of codes

  // `row` is the unit's first row in the weight. `rows` is UnitScales::rows_of() for the thread. `table`:
  // NormalFloatTable.
  __device__ __forceinline__ UnitFragments(const WeightUnits& w, int row, unsigned rows,
                                           const unsigned char* table = nullptr)
      : w_(w), first_(row), rows_(rows), table_(table) {}

  // Called before the batches of a unit. Reads the zeros, if the same zeros are subtracted from the whole
  // unit.
  __device__ __forceinline__ void begin(const unsigned char* unit) {
    if (!PLAIN && (!kWeights || kDecides)) {
      if (w_.weight.zero == Zero::subtracted) zeros_ = zeros_of(unit, 0);
    }
  }

  // Converts a batch of steps, the first one being step `step` of a unit and step i of `codes`.
  template <class Codes>
  __device__ __forceinline__ void convert(Fragments& a, const Codes& codes, int i, int step,
                                          const unsigned char* unit) const {
    FASTGEMM_UNROLL
    for (int j = 0; j < STEPS; ++j) {
      if constexpr (kPlaces)
        place_e2m1<T>(a[j], *codes.words(i + j));
      else if constexpr (kTable)
        NormalFloatTable::decode(a[j], *codes.words(i + j), table_);
      else
        decode_step<T, code>(a[j], codes.words(i + j));
    }
    if (!kWeights || (kDecides && w_.at_end)) {
      if constexpr (kPlaces) multiply(a, kE2m1Factor<T>);
      if (!PLAIN && w_.weight.zero == Zero::subtracted) subtract(a, 0, STEPS, zeros_);
    } else if (scaled != Scaled::pairs && !w_.in_pairs) {
      if constexpr (kPlaces) multiply(a, kE2m1Factor<T>);
      scale_by_floats(a, unit, step);
    } else if constexpr (kPlaces) {
      w_.weight.scale == ScaleType::e4m3 ? scale_by_e4m3(a, unit, step) : scale_by_e8m0(a, unit, step);
    } else {
      w_.scales.steps >= 4   ? scale_by_pairs<4>(a, unit, step)
      : w_.scales.steps == 2 ? scale_by_pairs<2>(a, unit, step)
                             : scale_by_pairs<1>(a, unit, step);
    }
  }

  // The scales by which the sums of this step's group are multiplied.
  __device__ __forceinline__ RowPair scales_of_sums(const unsigned char* unit, int step) const {
    const UnitScales& s = w_.scales;
    if (PLAIN || (code != Code::e2m1 && w_.in_pairs)) {
      constexpr int kCodeBytes = packed::kRows * packed::kColumns * bits_of(code) / 8;
      const uint32_t pair = PLAIN ? UnitScales::pair<2>(unit + kCodeBytes, rows_, 0)
                                  : UnitScales::pair<2>(unit + s.at, rows_, step >> s.log_steps);
      return {low_of<T>(pair), high_of<T>(pair)};
    }
    if (s.type == ScaleType::f32 && !s.shared) {
      const auto both = load_vector<Vector<float, 2>>(unit + s.at + 4 * s.index(rows_, step));
      return {both[0], both[1]};
    }
    return s.scales(unit, rows_, step);
  }

  // The first of the thread's rows in the weight.
  __device__ __forceinline__ int row() const { return first_ + int(rows_ / 16 * 16 + rows_ % 16 / 2); }

 private:
  // Subtracts zeros from steps [first, end) of a batch.
  __device__ __forceinline__ void subtract(Fragments& a, int first, int end, uint32_t zeros) const {
    const uint32_t of_row[2] = {first_twice(zeros), second_twice(zeros)};
    FASTGEMM_UNROLL
    for (int j = first; j < end; ++j) subtract_zeros<T>(a[j], of_row);
  }
  // The zeros of the group of a step.
  __device__ __forceinline__ uint32_t zeros_of(const unsigned char* unit, int step) const {
    if (scaled == Scaled::rows || (kDecides && w_.at_end)) {
      const RowPair zeros = w_.row_zeros(row());
      return round_pair<T>(zeros.first, zeros.second);
    }
    return w_.scales.zero_pair<T>(unit, rows_, step);
  }
  // The group of a step. Groups have GROUP steps; 4 stands for 4 or more.
  template <int GROUP>
  __device__ __forceinline__ int group_of(int step) const {
    return GROUP == 4 ? step >> w_.scales.log_steps : step / GROUP;
  }

  __device__ __forceinline__ static void multiply(Fragments& a, float by) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4 * STEPS; ++i) a[i / 4][i % 4] = multiply_pairs<T>(a[i / 4][i % 4], pair_of<T>(by));
  }
  // Multiplies steps [first, end) by a pair of scales, and adds a pair of zeros.
  __device__ __forceinline__ static void scale(Fragments& a, int first, int end, uint32_t scales,
                                               uint32_t zeros = 0) {
    const uint32_t by[2] = {first_twice(scales), second_twice(scales)};
    const uint32_t more[2] = {first_twice(zeros), second_twice(zeros)};
    FASTGEMM_UNROLL
    for (int i = 4 * first; i < 4 * end; ++i)
      a[i / 4][i % 4] = multiply_add_pairs<T>(a[i / 4][i % 4], by[i % 2], more[i % 2]);
  }

  // code * scale + zero or (code - zero) * scale, rounded to T. Scales are numbers of T.
  template <int GROUP>
  __device__ __forceinline__ void scale_by_pairs(Fragments& a, const unsigned char* unit, int step) const {
    FASTGEMM_UNROLL
    for (int j = 0; j < STEPS; j += GROUP) {
      const int group = group_of<GROUP>(step + j), end = min(j + GROUP, STEPS);
      if constexpr (kIntegers) {
        if (w_.weight.zero == Zero::subtracted) subtract(a, j, end, zeros_of(unit, step + j));
      }
      uint32_t zeros = 0;
      if (w_.weight.zero == Zero::added) zeros = UnitScales::pair<2>(unit + w_.scales.zeros_at, rows_, group);
      scale(a, j, end, UnitScales::pair<2>(unit + w_.scales.at, rows_, group), zeros);
    }
  }
  // For e2m1 codes, which place_e2m1() has placed, in groups of 16 columns.
  __device__ __forceinline__ void scale_by_e4m3(Fragments& a, const unsigned char* unit, int step) const {
    FASTGEMM_UNROLL
    for (int j = 0; j < STEPS; ++j) {
      const uint32_t pair = pair_of_e4m3<T>(UnitScales::pair<1>(unit + w_.scales.at, rows_, step + j));
      scale(a, j, j + 1, multiply_pairs<T>(pair, pair_of<T>(kOfE4m3<T>)));
    }
  }
  // The same in groups of 32 columns. Scales below 2 are multiplied by kE2m1Factor by an addition of
  // exponents.
  __device__ __forceinline__ void scale_by_e8m0(Fragments& a, const unsigned char* unit, int step) const {
    constexpr int kGroups = STEPS / 2;
    uint32_t pairs[kGroups], all = 0;
    FASTGEMM_UNROLL
    for (int i = 0; i < kGroups; ++i)
      all |= pairs[i] = UnitScales::pair<1>(unit + w_.scales.at, rows_, step / 2 + i);
    if (all & 0x8080u) {
      multiply(a, kE2m1Factor<T>);
      FASTGEMM_UNROLL
      for (uint32_t& pair : pairs) pair = pair_of_e8m0(pair);
    } else {
      FASTGEMM_UNROLL
      for (uint32_t& pair : pairs) pair = __byte_perm(pair, 0, 0x4140) * 128 + (126 << 7) * 0x10001u;
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < kGroups; ++i) scale(a, 2 * i, 2 * i + 2, pairs[i]);
  }
  // The same with scales of any type, step by step.
  __device__ __forceinline__ void scale_by_floats(Fragments& a, const unsigned char* unit, int step) const {
    RowPair scales{}, added{0, 0};
    uint32_t zeros = 0;
    FASTGEMM_UNROLL
    for (int j = 0; j < STEPS; ++j) {
      if (w_.scales.by_rows) {
        if (j == 0) scales = w_.row_scales(row()), added = w_.row_zeros(row());
      } else if ((j & (w_.scales.steps - 1)) == 0) {
        if (kIntegers && w_.weight.zero == Zero::subtracted) zeros = zeros_of(unit, step + j);
        if (!kPlaces && w_.weight.zero == Zero::added) added = w_.scales.added_zeros(unit, rows_, step + j);
        scales = w_.scales.scales(unit, rows_, step + j);
      }
      if (kIntegers && w_.weight.zero == Zero::subtracted) subtract(a, j, j + 1, zeros);
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) {
        const float by = p % 2 ? scales.second : scales.first, more = p % 2 ? added.second : added.first;
        const float low = multiply_add(low_of<T>(a[j][p]), by, more);
        a[j][p] = round_pair<T>(low, multiply_add(high_of<T>(a[j][p]), by, more));
      }
    }
  }

  const WeightUnits& w_;
  int first_;
  unsigned rows_;
  uint32_t zeros_ = 0;
  const unsigned char* table_;
};

}  // namespace fastgemm::FASTGEMM_TARGET
