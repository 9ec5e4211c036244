// The source of 8-bit floating-point numbers: each group of k is multiplied on its own, and its products are
// added to float32 sums in registers. Hopper's tensor cores keep about 14 bits of a sum of such numbers, so a
// sum over all of k would err by a part in a thousand; sums over 128 of k err by a part in eight thousand,
// whatever k is (docs/fp8.md).
//
//   tensor cores    | group 0, warpgroup 0 | group 0, 1 | group 0, 2 | group 1, 0 | ...
//   warpgroup 0                            | add        |  waits     |            |
//
// Three warpgroups take turns at the tensor cores: while one adds, two others have products to be computed.
// With two, both would wait for their products and add them at the same time, and the tensor cores would
// idle. Method: the promotion of DeepSeek-V3 (technical report, 3.3.2).
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
  using Sum = float;
  static constexpr int kSums = COLUMNS / 2, kCodes = X::kBytes + Y::kBytes;
  struct Products {
    using Rows = InOrder;
  };

  // As StageProducer (parts/main_loop.cuh); the stages also have scales.
  template <class S>
  class Producer {
   public:
    template <class Shared>
    __device__ __forceinline__ Producer(Shared& shared, const BoxMaps& maps, const OperandScales& scales)
        : stages_(shared.stage[0]), ring_(shared.ring), maps_(maps), scales_(scales) {}

    __device__ __forceinline__ void fill(const StageOrigin& from, int begin, int end, bool elected) {
      FASTGEMM_NO_UNROLL
      for (int step = begin; step < end; ++step)
        ring_.fill(at_, elected, kCodes + Scales::kBytes, [&](int stage, Barrier* full) {
          unsigned char* const to = stages_ + stage * S::kStageBytes;
          X::load(to, &maps_.x, full, from.x, step * X::kK, 0);
          Y::load(to + X::kBytes, &maps_.y, full, from.y, step * Y::kK, 0);
          if constexpr (scaling != Scaling::sums)
            Scales::load(to + kCodes, scales_, full, from.x, from.y, step);
        });
    }

   private:
    unsigned char* stages_;
    RingBarriers<S::kStages>& ring_;
    const BoxMaps& maps_;
    const OperandScales& scales_;
    RingPosition<S::kStages> at_{0, 1};  // a new stage counts as empty
  };

  template <class S>
  class Consumer {
   public:
    RingPosition<S::kStages> at{0, 0};

    template <class Shared>
    __device__ __forceinline__ Consumer(Shared& shared, int warp)
        : stages_(shared.stage[0]),
          ring_(shared.ring),
          x_(X::descriptor(shared.stage[0], 64 * (warp / 4))),
          y_(Y::descriptor(shared.stage[0] + X::kBytes)),
          row_(16 * warp + int(threadIdx.x) % 32 / 4),
          leader_(threadIdx.x % 32 == 0) {}

    template <int R, class Schedule>
    __device__ __forceinline__ void begin(float (&sum)[R], const Schedule&, const Part&, int) {
      FASTGEMM_UNROLL
      for (int i = 0; i < R; ++i) sum[i] = 0;
    }

    template <int R, class Meanwhile>
    __device__ __forceinline__ void multiply(float (&sum)[R], bool /* accumulate */, Meanwhile&&) {
      // The shuffle tells the compiler that all lanes agree, so that descriptors are made in uniform
      // registers.
      const int stage = __shfl_sync(0xffffffffu, at.stage, 0), bytes = stage * S::kStageBytes;
      wait_phase(&ring_.full[stage], at.phase);
      constexpr int kSteps = GROUP / 32;  // instructions
      FASTGEMM_NO_UNROLL
      for (int step = 0; step < X::kSteps; step += kSteps) {
        float product[R];
        wgmma_fence(product);
        FASTGEMM_UNROLL
        for (int i = 0; i < kSteps; ++i)
          wgmma<E>(product, x_.at(bytes + X::step(step + i)), y_.at(bytes + Y::step(step + i)), i > 0);
        wgmma_commit();
        const auto* const boxes = reinterpret_cast<const float*>(stages_ + bytes + kCodes);
        const int group = step / kSteps;
        const GroupScales<scaling> scales(boxes + group * ROWS, boxes + Scales::kX / 4 + group * COLUMNS,
                                          row_);
        wgmma_wait<0>(product);
        const bool is_last = step + kSteps == X::kSteps;
        if (scaling != Scaling::columns && is_last) release(stage);
        scales.add(sum, product);
        if (scaling == Scaling::columns && is_last) release(stage);
      }
      at.advance();
    }
    template <int R>
    __device__ __forceinline__ void finish(float (&)[R]) {}

   private:
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
  };
};

}  // namespace fastgemm::FASTGEMM_TARGET
