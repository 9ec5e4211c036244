// The source of 8-bit floating-point numbers. The tensor cores sum the products of one group of k (128 or 32
// values) at a time, and these sums are added to float32 sums in registers. Hopper's tensor cores keep about
// 14 bits of a sum of such products. So a sum over all of k would err by a part in a thousand; sums of groups
// of 128 err by a part in eight thousand, whatever k is (docs/fp8.md).
//
//   tensor cores    | group 0, warpgroup 0 | group 0, 1 | group 0, 2 | group 1, 0 | ...
//   warpgroup 0                            | add        |  waits     |            |
//
// Three or four warpgroups take turns: while one adds, the tensor cores compute products of the others. Two
// warpgroups would wait at the same time and then add at the same time, and the tensor cores would be idle
// meanwhile. Four warpgroups have registers for products of 64 columns only, so each multiplies the two
// halves of its columns in turn. The rows of X are then read twice. In long products this costs power, and so
// lowers the clock. Method: the promotion of DeepSeek-V3 (technical report, 3.3.2).
#pragma once

#include "cuda/device/fp8.cuh"
#include "cuda/gemm/fp8/stage_scales.cuh"
#include "cuda/gemm/parts/specialized.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Multiplies stages of (ROWS, 128) of X by (COLUMNS, 128) of Y, both with k along rows, as elements of E.
// GROUP: 128, or 32.
template <class E, int ROWS, int COLUMNS, Scaling scaling, int GROUP>
struct PromotedSource {
  using X = OperandTile<uint8_t, Major::k, ROWS>;
  using Y = OperandTile<uint8_t, Major::k, COLUMNS>;
  using Scales = ScaleBoxes<scaling, ROWS, COLUMNS, GROUP>;
  static constexpr int kCodes = X::kBytes + Y::kBytes;
  static constexpr int kArrivals = Scales::kSingles > 0 ? 2 : 1;  // of the producer, for a stage

  // Like StageProducer (parts/main_loop.cuh), for stages that also have scales. With S::kReadsXOnce, L2
  // evicts X first.
  template <class S>
  class Producer {
   public:
    template <class Shared>
    __device__ __forceinline__ Producer(Shared& shared, const BoxMaps& maps, const OperandScales& scales)
        : stages_(shared.stage[0]), ring_(shared.ring), maps_(maps), scales_(scales) {}

    __device__ __forceinline__ void fill(const StageOrigin& from, int begin, int end, bool elected) {
      const auto at = Scales::offsets(scales_, from.x, from.y);
      FASTGEMM_NO_UNROLL
      for (int step = begin; step < end; ++step)
        ring_.fill(at_, elected, kCodes + Scales::kBytes, [&](int stage, Barrier* full) {
          unsigned char* const to = stages_ + stage * S::kStageBytes;
          X::template load<S::kReadsXOnce>(to, &maps_.x, full, from.x, step * X::kK, 0);
          Y::load(to + X::kBytes, &maps_.y, full, from.y, step * Y::kK, 0);
          if constexpr (scaling != Scaling::sums)
            Scales::load(to + kCodes, scales_, full, at, from.x, from.y, step);
        });
    }

   private:
    unsigned char* stages_;
    RingBarriers<S::kStages>& ring_;
    const BoxMaps& maps_;
    const OperandScales& scales_;
    RingPosition<S::kStages> at_{0, 1};  // a new stage counts as empty
  };

  // Multiplies S::kWidth columns of a stage at a time: all of them, or one half after the other, which leaves
  // registers for a fourth warpgroup.
  template <class S>
  class Consumer {
    static constexpr int kSteps = GROUP / 32;  // instructions of a product

   public:
    static constexpr int kHalves = COLUMNS / S::kWidth;
    static constexpr int kProducts = X::kSteps / kSteps;  // of a stage, for kWidth columns
    static constexpr int kSums = S::kWidth / 2;           // of a product, in a thread
    RingPosition<S::kStages> at{0, 0};

    template <class Shared>
    __device__ __forceinline__ Consumer(Shared& shared, int warp)
        : stages_(shared.stage[0]),
          ring_(shared.ring),
          x_(X::descriptor(shared.stage[0], 64 * (warp / 4))),
          y_(Y::descriptor(shared.stage[0] + X::kBytes)),
          row_(16 * warp + int(threadIdx.x) % 32 / 4),
          leader_(threadIdx.x % 32 == 0) {}

    // Begins the next product, of a group of k. Nothing else may access `product` until complete().
    template <int half>
    __device__ __forceinline__ void issue(float (&product)[kSums]) {
      issue<half>(product, at);
    }
    template <int half>
    __device__ __forceinline__ void issue(float (&product)[kSums], const RingPosition<S::kStages>& from) {
      // The shuffle tells the compiler that all lanes agree, so that descriptors are made in uniform
      // registers.
      const int stage = __shfl_sync(0xffffffffu, from.stage, 0), bytes = stage * S::kStageBytes;
      if (half == 0 && step_ == 0) wait_phase(&ring_.full[stage], from.phase);
      wgmma_fence(product);
      FASTGEMM_UNROLL
      for (int i = 0; i < kSteps; ++i)
        wgmma<E>(product, x_.at(bytes + X::step(step_ + i)),
                 y_.at(bytes + half * S::kWidth * 128 + Y::step(step_ + i)), i > 0);
      wgmma_commit();
    }
    // Waits for the product and adds it to its half of the sums. `is_last`: no other half follows. `later`:
    // how many products that began after this one may still be in flight.
    template <int half, bool is_last = half == kHalves - 1, int later = 0, int R>
    __device__ __forceinline__ void complete(float (&sum)[R], float (&product)[kSums]) {
      const int stage = __shfl_sync(0xffffffffu, at.stage, 0), group = step_ / kSteps;
      const auto* const boxes = reinterpret_cast<const float*>(stages_ + stage * S::kStageBytes + kCodes);
      const float* const single = boxes + Scales::kBytes / 4;
      const float* const y = boxes + Scales::kY / 4 + group * COLUMNS + half * S::kWidth;
      const GroupScales<scaling, kHalves == 2> scales(boxes + group * ROWS, Scales::kBoxY ? y : single, row_,
                                                      of_block(single));
      wgmma_wait<later>(product);
      const bool ends_stage = is_last && step_ + kSteps == X::kSteps;
      const int done = at.stage;
      if (ends_stage) at.advance();
      if (is_last && kSteps != X::kSteps) step_ = ends_stage ? 0 : step_ + kSteps;
      if (!scales.kReadsLate && ends_stage) release(done);
      scales.add(reinterpret_cast<float(&)[kSums]>(sum[half * kSums]), product);
      if (scales.kReadsLate && ends_stage) release(done);
    }
    // Multiplies all columns of the next group.
    template <bool is_issued, int R>
    __device__ __forceinline__ void multiply(float (&sum)[R], float (&product)[kSums]) {
      if (!is_issued) issue<0>(product);
      complete<0>(sum, product);
      if constexpr (kHalves == 2) issue<1>(product), complete<1>(sum, product);
    }
    // Multiplies the next COUNT stages. All of their products begin before the first one is added.
    template <int COUNT, int R>
    __device__ __forceinline__ void multiply_stages(float (&sum)[R], float (&product)[COUNT][kSums]) {
      static_assert(kHalves == 1 && kProducts == 1);
      RingPosition<S::kStages> ahead = at;
      FASTGEMM_UNROLL
      for (int i = 0; i < COUNT; ++i) issue<0>(product[i], ahead), ahead.advance();
      complete_all(sum, product, std::make_integer_sequence<int, COUNT>());
    }
    // Multiplies only the first half of the columns of the next group.
    template <int R>
    __device__ __forceinline__ void multiply_half(float (&sum)[R], float (&product)[kSums]) {
      issue<0>(product), complete<0, true>(sum, product);
    }

   private:
    template <int R, int COUNT, int... i>
    __device__ __forceinline__ void complete_all(float (&sum)[R], float (&product)[COUNT][kSums],
                                                 std::integer_sequence<int, i...>) {
      (complete<0, true, COUNT - 1 - i>(sum, product[i]), ...);
    }
    // The scale of the thread's block of X.
    __device__ __forceinline__ float of_block(const float* single) const {
      return scaling == Scaling::blocks_by_columns ? single[row_ / Scales::kLines] : 1;
    }
    // The stage may be filled again: its products are complete, and all lanes have read its scales.
    __device__ __forceinline__ void release(int stage) {
      if constexpr (scaling != Scaling::sums) __syncwarp();
      if (leader_) arrive(&ring_.empty[stage]);
    }

    const unsigned char* stages_;
    RingBarriers<S::kStages>& ring_;
    MatrixDescriptor x_, y_;
    int row_;  // the thread's first row of X
    bool leader_;
    int step_ = 0;  // the next product begins with this instruction of its stage
  };
};

// The block's share of the last tiles (parts/schedules/stream_k.cuh). It is in shared memory, because a
// consumer has no registers left for it.
struct BlockShare {
  int tile, end;              // of the part that is computed first: its end is `end`
  int last_tile, last_begin;  // of the part that is computed last

  __device__ __forceinline__ void init(const StreamK& plan) {
    const int64_t begin = plan.begin(int(blockIdx.x)), stop = plan.begin(int(blockIdx.x) + 1);
    tile = last_tile = end = last_begin = 0;
    if (begin == stop) return void(last_tile = 1);  // no share
    tile = plan.whole_tiles + int((stop - 1) / plan.steps), end = int((stop - 1) % plan.steps) + 1;
    last_tile = plan.whole_tiles + int(begin / plan.steps), last_begin = int(begin % plan.steps);
  }
  // Sets `part` to part i of the block, in the order of Parts. Returns false after the last part.
  __device__ __forceinline__ bool part(const StreamK& plan, int i, Part& part) const {
    const int whole = int(blockIdx.x) + i * int(gridDim.x);
    if (whole < plan.whole_tiles) return part = {whole, 0, plan.steps}, true;
    const int later = (whole - plan.whole_tiles) / int(gridDim.x);
    part = {tile - later, tile - later == last_tile ? last_begin : 0, later == 0 ? end : plan.steps};
    return part.tile >= last_tile;
  }
};

// The parts of a block, for consume_promoted(): part(i, to) sets `to` to part i, and returns false after the
// last one.
struct SharedParts {
  const BlockShare& share;
  const ChunkSchedule<float>& plan;

  __device__ __forceinline__ bool part(int i, Part& to) const { return share.part(plan.work, i, to); }
  __device__ __forceinline__ int stages_of(const Part& part) const { return plan.stages_of(part); }
};

// Computes a block's parts of tiles. It calls begin(part) before it adds the first product of a part, and
// finish(sum, part) when the sums of a part are complete. With S::kIssuesAhead, the tensor cores compute the
// first product of the next part during finish():
//
//   tensor cores | ... | last product | first product | second product ...
//   warpgroup          |   waits      | add | finish(sum)     | add
template <class S, class Consumer, class Parts, class Begin, class Finish>
__device__ __forceinline__ void consume_promoted(Consumer& consumer, const Parts& parts, Begin&& begin,
                                                 Finish&& finish) {
  float sum[S::kSums], product[Consumer::kSums];
  int i = 0;
  // A part is computed again wherever it is needed, because no registers are left to hold it.
  const auto part = [&](int later, Part& to) { return parts.part(fresh(i) + later, to); };
  const auto finish_part = [&] {
    Part done;
    part(0, done);
    finish(sum, done);
  };
  Part next;
  if (!part(0, next)) return;
  if (S::kIssuesAhead) consumer.template issue<0>(product);
  for (;; ++i) {
    begin(next);
    FASTGEMM_UNROLL
    for (int j = 0; j < S::kSums; ++j) sum[j] = 0;
    if (S::kIssuesAhead) consumer.template multiply<true>(sum, product);
    int left = parts.stages_of(next) * Consumer::kProducts - S::kIssuesAhead;
    if constexpr (S::kSkipsHalves)
      if (parts.takes_half(next)) {
        FASTGEMM_NO_UNROLL
        for (; left > 0; --left) consumer.multiply_half(sum, product);
      }
    FASTGEMM_NO_UNROLL
    for (; left > 0; --left) consumer.template multiply<false>(sum, product);
    if (!part(1, next)) break;
    if (S::kIssuesAhead) consumer.template issue<0>(product);
    finish_part();
    if (S::kIssuesAhead) wgmma_wait<0>(product);
  }
  finish_part();
}

}  // namespace fastgemm::FASTGEMM_TARGET
