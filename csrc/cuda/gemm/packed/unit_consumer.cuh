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
    const Terms of_rows = g_.scales.by_rows ? terms_of_rows(row) : Terms{};
    int before = -1;  // the stage whose products are in flight
    FASTGEMM_NO_UNROLL
    for (int step = first; step < end; ++step) {
      const unsigned char* const stage = stages_ + stage_ * g_.stage_bytes;
      wait_phase(&shared_.ring.full[stage_], phase_);
      const int along_k = warpgroup_ % S::kAlongK;
      const unsigned char* const unit = stage + S::kXBytes + warpgroup_ * g_.unit_pitch;
      const MatrixDescriptor x = X::descriptor(stage + along_k * (2 * S::kBoxBytes));
      const bool valid = step * S::kAlongK + along_k < g_.column_units;
      Terms terms = valid ? of_rows : Terms{};
      FASTGEMM_NO_UNROLL
      for (int begin = 0; begin < 8; begin += kUnrolled) {
        UnitCodes codes(unit + begin * kStepBytes, thread_);
        FASTGEMM_UNROLL
        for (int i = 0; i < kUnrolled; i += kBatch) {
          Fragments& a = registers[i / kBatch % 2];
          wgmma_wait<1>();  // the products that read them
          if (!kPromotes && i == kBatch && begin == 0) release(before);
          if constexpr (!kReadsAhead) codes.load(i, kBatch);
          convert(a, codes, i, begin, unit, valid, terms);
          tie_registers(a);  // the compiler does not move the conversion behind the wait
          if (kPromotes && (i == 0 || scaled == Scaled::pairs)) {
            wgmma_wait<0>(acc);
            if (i == 0 && begin == 0) release(before);
            promote(sum, acc, of_sums);
            of_sums = terms.scales;
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
  }

 private:
  using X = OperandTile<T, Major::k, S::kN>;
  static constexpr bool kPromotes = scaled == Scaled::units || scaled == Scaled::pairs;
  // k16 steps of a unit: in a batch, and in the body of a loop. More of them are more code.
  static constexpr bool kLong = S::kN <= 64 && (scaled == Scaled::units || scaled == Scaled::rows);
  static constexpr int kBatch = kLong && S::kN < 64 ? 4 : 2, kUnrolled = kLong ? 8 : 4;
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

  // The scales and zeros of a group in this thread's rows. Arrays have a register for each row: twice a
  // number of T, or (if scales are not exact in T) a float32.
  struct Terms {
    RowPair scales{1, 1};                                        // of sums
    uint32_t subtracted[2] = {}, factor[2] = {}, added[2] = {};  // of weights
  };

  __device__ __forceinline__ uint32_t term(float x) const {
    return g_.in_pairs ? round_pair<T>(x, x) : __float_as_uint(x);
  }
  __device__ __forceinline__ Terms terms_of(const RowPair& scales, const RowPair& zeros) const {
    Terms t;
    if constexpr (kPromotes) t.scales = scales;
    if (g_.weight.zero == Zero::subtracted)
      t.subtracted[0] = round_pair<T>(zeros.first, zeros.first),
      t.subtracted[1] = round_pair<T>(zeros.second, zeros.second);
    if constexpr (scaled == Scaled::weights) {
      t.factor[0] = term(scales.first), t.factor[1] = term(scales.second);
      if (g_.weight.zero == Zero::added) t.added[0] = term(zeros.first), t.added[1] = term(zeros.second);
    }
    return t;
  }
  __device__ __forceinline__ Terms terms_of_rows(int row) const {
    const int first = min(row, g_.n - 1), second = min(row + 8, g_.n - 1);
    const auto* const scales = static_cast<const float*>(g_.weight.scales);
    return terms_of({scales[first], scales[second]},
                    {row_zero(g_.weight, first), row_zero(g_.weight, second)});
  }

  // Converts the batch of steps from i on of those that begin with step `begin` of a unit, and reads the
  // scales of each group that begins there.
  __device__ __forceinline__ void convert(Fragments& a, const UnitCodes& codes, int i, int begin,
                                          const unsigned char* unit, bool valid, Terms& terms) const {
    FASTGEMM_UNROLL
    for (int j = i; j < i + kBatch; ++j) {
      if (may_begin_group(j) && !g_.scales.by_rows && ((begin + j) & (g_.scales.steps - 1)) == 0) {
        RowPair scales = g_.scales.scales(unit, thread_, begin + j), zeros{0, 0};
        if constexpr (scaled != Scaled::units) zeros = g_.scales.zeros(unit, thread_, begin + j);
        if (!valid) scales = zeros = {0, 0};  // x is 0 there, and the scale may be infinite
        terms = terms_of(scales, zeros);
      }
      decode_step<T, code>(a[j - i], codes.words(j));
      if constexpr (scaled == Scaled::weights) scale(a[j - i], terms);
      if constexpr (scaled == Scaled::pairs) {
        if (g_.weight.zero == Zero::subtracted) subtract_zeros<T>(a[j - i], terms.subtracted);
      }
    }
    if (scaled == Scaled::rows && g_.weight.zero == Zero::subtracted) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kBatch; ++j) subtract_zeros<T>(a[j], terms.subtracted);
    }
  }
  __device__ __forceinline__ static constexpr bool may_begin_group(int step) {
    return scaled == Scaled::units   ? step == 0
           : scaled == Scaled::pairs ? step % 2 == 0
                                     : scaled == Scaled::weights;
  }

  // code * scale + zero or (code - zero) * scale, rounded to T.
  __device__ __forceinline__ void scale(uint32_t (&a)[4], const Terms& t) const {
    if (g_.weight.zero == Zero::subtracted) subtract_zeros<T>(a, t.subtracted);
    if (g_.in_pairs) {
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) a[p] = multiply_add_pairs<T>(a[p], t.factor[p % 2], t.added[p % 2]);
    } else {
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) {
        const float by = __uint_as_float(t.factor[p % 2]), more = __uint_as_float(t.added[p % 2]);
        a[p] =
            round_pair<T>(multiply_add(low_of<T>(a[p]), by, more), multiply_add(high_of<T>(a[p]), by, more));
      }
    }
  }

  // Issues the products of a batch, steps i and up after those of descriptor x.
  __device__ __forceinline__ void multiply_batch(Sums& acc, Fragments& a, const MatrixDescriptor& x,
                                                 int i) const {
    wgmma_fence(acc, a);
    FASTGEMM_UNROLL
    for (int j = i; j < i + kBatch; ++j)
      wgmma<T>(acc, a[j - i], x.at(j / 4 * S::kBoxBytes + X::step(j % 4)),
               !kPromotes || j > (scaled == Scaled::pairs ? i : 0));
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
