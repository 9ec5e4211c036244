// How a warpgroup multiplies a stage of the ring, `bytes` behind the first: with both operands in shared
// memory, or with a in registers. `meanwhile` runs while it does, `before_done` when the products of the
// stage before are done; one stage at least is always under way.
#pragma once

#include "cuda/gemm/parts/box_store.cuh"
#include "cuda/gemm/parts/fragments.cuh"
#include "cuda/gemm/parts/wgmma_operand.cuh"

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

// Two sets of registers have half a stage each: one is loaded while the other is multiplied.
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
  static constexpr int kHalf = B::kSteps / 2;  // instructions
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

}  // namespace fastgemm::FASTGEMM_TARGET
