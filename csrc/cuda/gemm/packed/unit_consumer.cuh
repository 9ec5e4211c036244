// A warpgroup that multiplies units (packed_wgmma.cu). Contract: multiply() gives the product of some stages
// of a tile. Codes become fragments in registers, a batch of k16 steps at a time, and two sets of registers
// hold two batches: one is converted while the tensor cores multiply the other.
//
//   Scaled::units   convert 0 | convert 1 | convert 0 | wait, sum += scale * products | convert 1 | ...
//   tensor cores              |-----0-----|-----1-----|                               |-----0-----|
#pragma once

#include "cuda/gemm/packed/unit_arguments.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S, class T, Code code, Scaled scaled, bool PLAIN>
class UnitConsumer {
 public:
  static constexpr int kSums = S::kN / 2;
  using Sums = float[kSums];

  __device__ __forceinline__ UnitConsumer(typename S::Shared& shared, const unsigned char* table,
                                          const unsigned char* stages, const UnitArguments& g, int warpgroup)
      : shared_(shared),
        table_(table),
        stages_(stages),
        g_(g),
        warpgroup_(warpgroup),
        leader_(threadIdx.x % 32 == 0) {}

  // sum = the product of stages [first, end) of a tile. `row` is the first row of the weight in this unit.
  __device__ __forceinline__ void multiply(Sums& sum, int row, int first, int end) {
    Source source(g_, row, UnitScales::rows_of(threadIdx.x % 128), table_);
    Sums apart;
    Sums& acc = kPromotes ? apart : sum;
    FASTGEMM_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = acc[i] = 0;
    Fragments registers[2];
    RowPair of_sums{0, 0};  // the scales of the sums in acc
    int before = -1;        // the stage whose products are in flight
    const int along_k = warpgroup_ % S::kAlongK,
              inside = (g_.column_units - along_k + S::kAlongK - 1) / S::kAlongK,
              row_at = S::kRowUnits > 1 ? warpgroup_ / S::kAlongK * g_.row_pitch : 0;
    FASTGEMM_NO_UNROLL
    for (int step = first; step < min(end, inside); ++step) {
      const unsigned char* const stage = stages_ + stage_ * g_.stage_bytes;
      wait_phase(&shared_.ring.full[stage_], phase_);
      const unsigned char* const unit = stage + g_.x_bytes + row_at + along_k * g_.unit_bytes;
      source.begin(unit);
      const MatrixDescriptor x = X::descriptor(stage + along_k * (2 * g_.box_bytes));
      FASTGEMM_NO_UNROLL
      for (int begin = 0; begin < 8; begin += kUnrolled) {
        UnitCodes codes(unit + begin * Source::kStepBytes);
        FASTGEMM_UNROLL
        for (int i = 0; i < kUnrolled; i += kBatch) {
          Fragments& a = registers[i / kBatch % 2];
          if (kSummed != kBatch || !kPromotes) wgmma_wait<1>();  // the products that read them
          if (!kPromotes && i == kBatch && begin == 0) release(before);
          if constexpr (!kReadsAhead) codes.load(i, kBatch);
          source.convert(a, codes, i, begin + i, unit);
          tie_registers(a);  // the compiler does not move the conversion behind the wait
          if (kPromotes && i % kSummed == 0) {
            const RowPair scales = source.scales_of_sums(unit, begin + i);
            wgmma_wait<0>(acc);
            if (i == 0 && begin == 0) release(before);
            promote(sum, acc, of_sums);
            of_sums = scales;
          }
          multiply_batch(acc, a, x.at(begin / 4 * g_.box_bytes), i);
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
  // Numbers of k16 steps: in a batch (kBatch), in the body of a loop (kUnrolled), and in the sums that one
  // scale multiplies (kSummed). A body of more steps is more code.
  static constexpr bool kLong =
      S::kN < 64 || (S::kN == 64 && (scaled == Scaled::units || scaled == Scaled::rows));
  static constexpr int kBatch = S::kN < 64 ? 4 : 2, kUnrolled = kLong ? 8 : 4;
  static constexpr int kSummed = scaled == Scaled::halves ? 4 : 8;
  // With wide tiles there are no registers for all codes of a unit.
  static constexpr bool kReadsAhead = S::kN < 64;
  using Source = UnitFragments<T, code, scaled, kBatch, PLAIN>;
  using Fragments = typename Source::Fragments;

  // A thread's codes of kUnrolled steps.
  struct UnitCodes {
    const unsigned char* from;
    Unit read[kUnrolled / kReadSteps<code>];

    __device__ __forceinline__ explicit UnitCodes(const unsigned char* steps)
        : from(steps + threadIdx.x % 128 * 16) {
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

  // Issues the products of a batch, steps i and up after those of descriptor x.
  __device__ __forceinline__ void multiply_batch(Sums& acc, Fragments& a, const MatrixDescriptor& x,
                                                 int i) const {
    wgmma_fence(acc, a);
    FASTGEMM_UNROLL
    for (int j = i; j < i + kBatch; ++j)
      wgmma<T>(acc, a[j - i], x.at(j / 4 * g_.box_bytes + X::step(j % 4)), !kPromotes || j % kSummed > 0);
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
  const unsigned char *table_, *stages_;
  const UnitArguments& g_;
  int warpgroup_;
  bool leader_;  // this lane arrives at barriers for its warp
  int stage_ = 0;
  uint32_t phase_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET
