// The consumer side of the ring: how a warpgroup multiplies a stage by wgmma, with both operands in shared
// memory or with A in registers. Contract: multiply(sum, bytes, accumulate, meanwhile, before_done)
// multiplies the stage that begins `bytes` bytes after the first one. It calls meanwhile() while the tensor
// cores work, and before_done() when the products of the stage before are complete.
//
//   stage           0        1        2          one stage at least is always in flight
//   issue        |--0--|  |--1--|  |--2--|
//   tensor cores    |---0----|---1----|---2----|
//   release                 0 ^      1 ^         wgmma_wait<1>(), then arrive(empty)
#pragma once

#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/sources/fragments.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class E, class A, class B, Major a_major, Major b_major>
class SharedOperands {
 public:
  using Rows = InOrder;

  __device__ __forceinline__ SharedOperands(const unsigned char* stage, int warp)
      : a_(A::descriptor(stage, 64 * (warp / 4))), b_(B::descriptor(stage + A::kBytes)) {}

  template <int R, class Meanwhile, class Done>
  __device__ __forceinline__ void multiply(Accumulator<E> (&sum)[R], int bytes, bool accumulate,
                                           Meanwhile&& meanwhile, Done&& before_done) {
    wgmma_fence(sum);
    multiply_tiles<E, A, B, a_major, b_major>(sum, a_.at(bytes), b_.at(bytes), accumulate);
    wgmma_commit();
    meanwhile();
    wgmma_wait<1>();
    before_done();
  }

 private:
  MatrixDescriptor a_, b_;
};

// A from registers: two sets of registers hold half a stage each, and one is loaded while the other is
// multiplied (double buffering).
template <class E, class A, class B>
class RegisterOperand {
 public:
  using Rows = Fragments<E>;

  __device__ __forceinline__ RegisterOperand(const unsigned char* stage, int warp)
      : fragments_(stage, warp, int(threadIdx.x) % 32), b_(B::descriptor(stage + A::kBytes)) {}

  template <int R, class Meanwhile, class Done>
  __device__ __forceinline__ void multiply(Accumulator<E> (&sum)[R], int bytes, bool accumulate,
                                           Meanwhile&& meanwhile, Done&& before_done) {
    multiply_half<0>(sum, bytes, accumulate);
    wgmma_wait<1>();
    __syncwarp();  // all lanes have read the stage before
    before_done();
    multiply_half<1>(sum, bytes, true);
    meanwhile();
    wgmma_wait<1>();
  }

 private:
  static constexpr int kHalf = B::kSteps / 2;  // instructions in half a stage
  static_assert(kHalf == 2, "the fence below names their registers");

  template <int half, int R>
  __device__ __forceinline__ void multiply_half(Accumulator<E> (&sum)[R], int bytes, bool accumulate) {
    uint32_t(&a)[kHalf][4] = a_[half];
    FASTGEMM_UNROLL
    for (int i = 0; i < kHalf; ++i) fragments_.load(a[i], bytes, half * kHalf + i);
    wgmma_fence(sum, a[0], a[1]);
    FASTGEMM_UNROLL
    for (int i = 0; i < kHalf; ++i)
      wgmma<E>(sum, a[i], b_.at(bytes + B::step(half * kHalf + i)), accumulate || i > 0);
    wgmma_commit();
  }

  Fragments<E> fragments_;
  MatrixDescriptor b_;
  uint32_t a_[2][kHalf][4];
};

// A warp of a consumer warpgroup and its position in the ring. It releases a stage when the products of the
// stage are complete and those of the next stage have been issued.
// `fences`: threads copied parts of the stages, which wgmma reads after a fence alone.
template <int STAGES, int STAGE_BYTES, class Products, bool fences = false>
class WgmmaConsumer {
 public:
  RingPosition<STAGES> at{0, 0};

  template <class... More>
  __device__ __forceinline__ WgmmaConsumer(RingBarriers<STAGES>& ring, const unsigned char* stages, int warp,
                                           const More&... more)
      : ring_(ring), products_(stages, warp, more...), leader_(threadIdx.x % 32 == 0) {}

  // Sets sum to the product of the next stage, or with `accumulate` adds it to sum. meanwhile() runs while
  // the tensor cores work.
  template <class Acc, int R, class Meanwhile>
  __device__ __forceinline__ void multiply(Acc (&sum)[R], bool accumulate, Meanwhile&& meanwhile) {
    wait_phase(&ring_.full[at.stage], at.phase);
    if constexpr (fences) fence_async_shared();
    products_.multiply(sum, at.stage * STAGE_BYTES, accumulate, meanwhile, [&] {
      if (leader_ && accumulate) arrive(before_);
    });
    before_ = &ring_.empty[at.stage];
    at.advance();
  }
  // Waits until the sums are complete, and releases the last stage.
  template <class Acc, int R>
  __device__ __forceinline__ void finish(Acc (&sum)[R]) {
    wgmma_wait<0>(sum);
    __syncwarp();
    if (leader_) arrive(before_);
  }

 private:
  RingBarriers<STAGES>& ring_;
  Products products_;
  Barrier* before_ = nullptr;
  bool leader_;  // this lane arrives at barriers for its warp
};

}  // namespace fastgemm::FASTGEMM_TARGET
