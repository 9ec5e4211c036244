// A warpgroup that multiplies units (packed_wgmma.cu). Contract: multiply() gives the product of some stages
// of a tile. Codes become fragments in registers, a batch of k16 steps at a time, and two sets of registers
// hold two batches: one is converted while the tensor cores multiply the other.
//
//   Scaled::units   convert 0 | convert 1 | convert 0 | wait, sum += scale * products | convert 1 | ...
//   tensor cores              |-----0-----|-----1-----|                               |-----0-----|
#pragma once

#include "cuda/gemm/packed/fragments.cuh"
#include "cuda/gemm/packed/unit_arguments.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S, class T, Code code, Scaled scaled>
class UnitConsumer {
 public:
  static constexpr int kSums = S::kN / 2;
  using Sums = float[kSums];

  __device__ __forceinline__ UnitConsumer(typename S::Shared& shared, const unsigned char* stages,
                                          const UnitArguments& g, int warpgroup)
      : shared_(shared),
        stages_(stages),
        g_(g),
        warpgroup_(warpgroup),
        thread_(int(threadIdx.x) % 128),
        leader_(threadIdx.x % 32 == 0) {}

  // sum = the product of stages [first, end) of a tile. `row` is this thread's first row of the weight.
  __device__ __forceinline__ void multiply(Sums& sum, int row, int first, int end) {
    Sums apart;
    Sums& acc = kPromotes ? apart : sum;
    FASTGEMM_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = acc[i] = 0;
    Fragments registers[2];
    RowPair of_sums{0, 0};  // the scales of the sums in acc
    const RowTerms of_rows = g_.scales.by_rows ? terms_of_rows(row) : RowTerms{};
    int before = -1;  // the stage whose products are in flight
    const int along_k = warpgroup_ % S::kAlongK, inside = (g_.column_units - along_k - 1) / S::kAlongK + 1;
    FASTGEMM_NO_UNROLL
    for (int step = first; step < min(end, inside); ++step) {
      const unsigned char* const stage = stages_ + stage_ * g_.stage_bytes;
      wait_phase(&shared_.ring.full[stage_], phase_);
      const unsigned char* const unit = stage + S::kXBytes + warpgroup_ * g_.unit_pitch;
      const MatrixDescriptor x = X::descriptor(stage + along_k * (2 * S::kBoxBytes));
      FASTGEMM_NO_UNROLL
      for (int begin = 0; begin < 8; begin += kUnrolled) {
        UnitCodes codes(unit + begin * kStepBytes, thread_);
        FASTGEMM_UNROLL
        for (int i = 0; i < kUnrolled; i += kBatch) {
          Fragments& a = registers[i / kBatch % 2];
          if (kSummed != kBatch || !kPromotes) wgmma_wait<1>();  // the products that read them
          if (!kPromotes && i == kBatch && begin == 0) release(before);
          if constexpr (!kReadsAhead) codes.load(i, kBatch);
          convert(a, codes, i, begin + i, unit, of_rows);
          tie_registers(a);  // the compiler does not move the conversion behind the wait
          if (kPromotes && i % kSummed == 0) {
            const RowPair scales = scales_of_sums(unit, begin + i);
            wgmma_wait<0>(acc);
            if (i == 0 && begin == 0) release(before);
            promote(sum, acc, of_sums);
            of_sums = scales;
          }
          multiply_batch(acc, a, x.at(begin / 4 * S::kBoxBytes), i);
        }
      }
      before = stage_;
      advance_ring(stage_, phase_, g_.stages);
    }
    wgmma_wait<0>(acc);
    release(before);
    if (kPromotes) promote(sum, acc, of_sums);
    if (inside < end) {  // in the last stage of a tile this warpgroup has no unit of the weight
      wait_phase(&shared_.ring.full[stage_], phase_);
      release(stage_);
      advance_ring(stage_, phase_, g_.stages);
    }
  }

 private:
  using X = OperandTile<T, Major::k, S::kN>;
  static constexpr bool kPromotes = scaled == Scaled::units || scaled == Scaled::halves;
  static constexpr bool kIntegers = code == Code::int4 || code == Code::int8;
  // k16 steps of a unit: in a batch, in the body of a loop, and in sums that a scale multiplies. A body of
  // more steps is more code.
  static constexpr bool kLong =
      S::kN < 64 || (S::kN == 64 && (scaled == Scaled::units || scaled == Scaled::rows));
  static constexpr int kBatch = S::kN < 64 ? 4 : 2, kUnrolled = kLong ? 8 : 4;
  static constexpr int kSummed = scaled == Scaled::halves ? 4 : 8;
  // With wide tiles there are no registers for all codes of a unit.
  static constexpr bool kReadsAhead = S::kN < 64;
  static constexpr int kStepBytes = 128 * 16 / kReadSteps<code>;
  using Fragments = uint32_t[kBatch][4];

  // What a thread reads of the codes of kUnrolled steps.
  struct UnitCodes {
    const unsigned char* from;
    Unit read[kUnrolled / kReadSteps<code>];

    __device__ __forceinline__ UnitCodes(const unsigned char* steps, int thread) : from(steps + thread * 16) {
      if constexpr (kReadsAhead) load(0, kUnrolled);
    }
    __device__ __forceinline__ void load(int first, int count) {
      constexpr int kSteps = kReadSteps<code>;
      FASTGEMM_UNROLL
      for (int k = first; k < first + count; ++k)
        if (k % kSteps == 0) read[k / kSteps] = load_vector<Unit>(from + k / kSteps * (128 * 16));
    }
    __device__ __forceinline__ const uint32_t* words(int k) const {
      return read[k / kReadSteps<code>].v + k % kReadSteps<code> * kStepWords<code>;
    }
  };

  // What serves whole rows: scales and added zeros of weights, and subtracted zeros as numbers of T.
  struct RowTerms {
    RowPair scales{1, 1}, added{0, 0};
    uint32_t subtracted = 0;
  };
  __device__ __forceinline__ RowTerms terms_of_rows(int row) const {
    RowTerms t;
    const int first = min(row, g_.n - 1), second = min(row + 8, g_.n - 1);
    if constexpr (scaled == Scaled::weights) {
      const auto* const scales = static_cast<const float*>(g_.weight.scales);
      t.scales = {scales[first], scales[second]};
      t.added = {row_zero(g_.weight, first), row_zero(g_.weight, second)};
    } else {
      t.subtracted = round_pair<T>(row_zero(g_.weight, first), row_zero(g_.weight, second));
    }
    return t;
  }

  __device__ __forceinline__ RowPair scales_of_sums(const unsigned char* unit, int step) const {
    return g_.scales.scales(unit, thread_, step);
  }

  // Converts a batch of steps, the first one being step `step` of a unit and step i of `codes`.
  __device__ __forceinline__ void convert(Fragments& a, const UnitCodes& codes, int i, int step,
                                          const unsigned char* unit, const RowTerms& of_rows) const {
    FASTGEMM_UNROLL
    for (int j = 0; j < kBatch; ++j) decode_step<T, code>(a[j], codes.words(i + j));
    if constexpr (scaled != Scaled::weights) {
      if (g_.weight.zero == Zero::subtracted)
        subtract(a, 0, kBatch, scaled == Scaled::rows ? of_rows.subtracted : zeros_of<4>(unit, step));
    } else if (!g_.in_pairs) {
      scale_by_floats(a, unit, step, of_rows);
    } else if (code == Code::e2m1) {
      g_.scales.type == ScaleType::e4m3 ? scale_by_pairs<1>(a, unit, step) : scale_by_pairs<2>(a, unit, step);
    } else {
      g_.scales.steps >= 4   ? scale_by_pairs<4>(a, unit, step)
      : g_.scales.steps == 2 ? scale_by_pairs<2>(a, unit, step)
                             : scale_by_pairs<1>(a, unit, step);
    }
  }
  // Subtracts zeros from steps [first, end) of a batch.
  __device__ __forceinline__ void subtract(Fragments& a, int first, int end, uint32_t zeros) const {
    const uint32_t of_row[2] = {first_twice(zeros), second_twice(zeros)};
    FASTGEMM_UNROLL
    for (int j = first; j < end; ++j) subtract_zeros<T>(a[j], of_row);
  }
  // The zeros, and the scales or added zeros, of a group of STEPS steps (4: or more).
  template <int STEPS>
  __device__ __forceinline__ uint32_t zeros_of(const unsigned char* unit, int step) const {
    return g_.scales.zero_pair<T>(unit, thread_, group_of<STEPS>(step));
  }
  template <int STEPS>
  __device__ __forceinline__ int group_of(int step) const {
    return STEPS == 4 ? step >> g_.scales.log_steps : step / STEPS;
  }

  // code * scale + zero or (code - zero) * scale, rounded to T. Scales are numbers of T, for groups of STEPS
  // steps (4: or more).
  template <int STEPS>
  __device__ __forceinline__ void scale_by_pairs(Fragments& a, const unsigned char* unit, int step) const {
    FASTGEMM_UNROLL
    for (int j = 0; j < kBatch; j += STEPS) {
      const int group = group_of<STEPS>(step + j), end = min(j + STEPS, kBatch);
      if constexpr (kIntegers) {
        if (g_.weight.zero == Zero::subtracted) subtract(a, j, end, zeros_of<STEPS>(unit, step + j));
      }
      const uint32_t scales = g_.scales.pair<T, code>(unit + g_.scales.at, thread_, group);
      const uint32_t factor[2] = {first_twice(scales), second_twice(scales)};
      uint32_t added[2] = {0, 0};
      if constexpr (code != Code::e2m1) {
        if (g_.weight.zero == Zero::added) {
          const uint32_t zeros = g_.scales.pair<T, code>(unit + g_.scales.zeros_at, thread_, group);
          added[0] = first_twice(zeros), added[1] = second_twice(zeros);
        }
      }
      FASTGEMM_UNROLL
      for (int i = 4 * j; i < 4 * end; ++i)
        a[i / 4][i % 4] = multiply_add_pairs<T>(a[i / 4][i % 4], factor[i % 2], added[i % 2]);
    }
  }
  // The same with scales of any type.
  __device__ __forceinline__ void scale_by_floats(Fragments& a, const unsigned char* unit, int step,
                                                  const RowTerms& of_rows) const {
    RowPair scales = of_rows.scales, added = of_rows.added;
    uint32_t zeros = 0;
    FASTGEMM_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      if (!g_.scales.by_rows && (j & (g_.scales.steps - 1)) == 0) {
        if (g_.weight.zero == Zero::subtracted) zeros = zeros_of<4>(unit, step + j);
        scales = g_.scales.scales(unit, thread_, step + j);
        if (g_.weight.zero == Zero::added) added = g_.scales.added_zeros(unit, thread_, step + j);
      }
      if (g_.weight.zero == Zero::subtracted) subtract(a, j, j + 1, zeros);
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) {
        const float by = p % 2 ? scales.second : scales.first, more = p % 2 ? added.second : added.first;
        const float low = multiply_add(low_of<T>(a[j][p]), by, more);
        a[j][p] = round_pair<T>(low, multiply_add(high_of<T>(a[j][p]), by, more));
      }
    }
  }

  // Issues the products of a batch, steps i and up after those of descriptor x.
  __device__ __forceinline__ void multiply_batch(Sums& acc, Fragments& a, const MatrixDescriptor& x,
                                                 int i) const {
    wgmma_fence(acc, a);
    FASTGEMM_UNROLL
    for (int j = i; j < i + kBatch; ++j)
      wgmma<T>(acc, a[j - i], x.at(j / 4 * S::kBoxBytes + X::step(j % 4)), !kPromotes || j % kSummed > 0);
    wgmma_commit();
  }

  // Releases a stage, if there is one, whose products are complete.
  __device__ __forceinline__ void release(int stage) const {
    __syncwarp();  // all lanes have read it
    if (leader_ && stage >= 0) arrive(&shared_.ring.empty[stage]);
  }

  __device__ __forceinline__ static void promote(Sums& sum, const Sums& acc, const RowPair& s) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = multiply_add(acc[i], i % 4 < 2 ? s.first : s.second, sum[i]);
  }

  typename S::Shared& shared_;
  const unsigned char* stages_;
  const UnitArguments& g_;
  int warpgroup_, thread_;
  bool leader_;  // this lane arrives at barriers for its warp
  int stage_ = 0;
  uint32_t phase_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET
