// The two ways in which small_tile multiplies the stages of its ring: by mma.sync and by wgmma. A stage holds
// a tile of A and behind it one of B, in lines of 128 bytes. wgmma prescribes their swizzle, and it suits
// ldmatrix, too. Both call copy_next() for the next stage when a stage has been read, and hold their sums as
// fragments of mma.
#pragma once

#include "cuda/gemm/parts/line_copy.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"
#include "cuda/gemm/parts/warp_product.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Waits for the copies of a stage. After its group kStages - 2 more were committed or, for the first stage,
// kStages - 1.
template <int kStages>
__device__ __forceinline__ void wait_for_stage(int stage) {
  stage == 0 ? wait_async_copies<kStages - 1>() : wait_async_copies<kStages - 2>();
}

// Refills the slot of stage - 1, which all threads have read.
template <int kStages, class CopyNext>
__device__ __forceinline__ void refill(int stage, int stages, CopyNext&& copy_next) {
  if (stage == 0) return;
  if (stage - 1 + kStages < stages) copy_next();
  commit_async_copies();  // also an empty group, so that groups are counted like stages
}

// Multiplies a warp's tile of C::WM x C::WN by mma.sync, half a stage at a time. The first products are
// products of zeros: they bring the loop's instructions into the cache while the operands are loaded.
template <class C, class T, class TileA, class TileB>
class MmaProducts {
 public:
  using Warp = WarpProduct<C, T, TileA, TileB>;
  static constexpr int kM = Warp::kM, kN = Warp::kN;

  __device__ __forceinline__ MmaProducts(const unsigned char* ring, int row, int column)
      : ring_(ring), warp_(row, column) {}

  template <class CopyNext>
  __device__ __forceinline__ void multiply(int stages, CopyNext&& copy_next) {
    constexpr int kHalf = Warp::kSteps / 2;
    typename Warp::Fragments fragments[kHalf] = {};
    FASTGEMM_NO_UNROLL
    for (int half = 0; half <= 2 * stages; ++half) {
      const int stage = half / 2;
      FASTGEMM_UNROLL
      for (int step = 0; step < kHalf; ++step) {
        FASTGEMM_UNROLL
        for (int i = 0; i < kM; ++i) warp_.multiply(fragments[step], i);
      }
      if (half % 2 == 0 && stage < stages) {
        wait_for_stage<C::kStages>(stage);
        __syncthreads();  // all may read this stage, and all have read the one before
        refill<C::kStages>(stage, stages, copy_next);
      }
      if (stage == stages) continue;
      const unsigned char* const at = ring_ + stage % C::kStages * (TileA::kBytes + TileB::kBytes);
      FASTGEMM_UNROLL
      for (int step = 0; step < kHalf; ++step) {
        FASTGEMM_UNROLL
        for (int i = 0; i < kM; ++i) warp_.load(fragments[step], at, half % 2 * kHalf + step, i);
      }
    }
  }
  __device__ __forceinline__ const Accumulator<T> (&sum() const)[kM][kN][4] { return warp_.sum; }

 private:
  const unsigned char* ring_;
  Warp warp_;
};

// Multiplies by wgmma: the block's one warpgroup computes all 64 rows, each warp 16 of them. No fragments
// pass through registers, and a product of 64 x 64 x 64 is four instructions. For small products this saves
// more than is lost while the tensor cores wait for the next stage to become visible to them.
template <class C, class T, class TileA, class TileB>
class WgmmaProducts {
  static constexpr Major kMajorA = TileA::kAlongK ? Major::k : Major::mn;
  static constexpr Major kMajorB = TileB::kAlongK ? Major::k : Major::mn;
  using A = OperandTile<T, kMajorA, C::BM>;
  using B = OperandTile<T, kMajorB, C::BN>;
  static_assert(A::kBytes == TileA::kBytes && B::kBytes == TileB::kBytes);
  static_assert(C::BM == 64 && C::WM == 16 && C::WN == C::BN && C::kWarps == 4);

 public:
  static constexpr int kM = 1, kN = C::BN / 8;

  __device__ __forceinline__ WgmmaProducts(const unsigned char* ring, int /*row*/, int /*column*/)
      : a_(A::descriptor(ring)), b_(B::descriptor(ring + A::kBytes)) {}

  template <class CopyNext>
  __device__ __forceinline__ void multiply(int stages, CopyNext&& copy_next) {
    auto& sum = reinterpret_cast<Accumulator<T>(&)[4 * kN]>(sum_);
    FASTGEMM_NO_UNROLL
    for (int stage = 0; stage < stages; ++stage) {
      wait_for_stage<C::kStages>(stage);
      fence_async_shared();
      wgmma_wait<0>(sum);
      __syncthreads();  // all may read this stage, and all have read the one before
      refill<C::kStages>(stage, stages, copy_next);
      const int at = stage % C::kStages * (A::kBytes + B::kBytes);
      wgmma_fence(sum);
      multiply_tiles<T, A, B, kMajorA, kMajorB>(sum, a_.at(at), b_.at(at), true);
      wgmma_commit();
    }
    wgmma_wait<0>(sum);
  }
  __device__ __forceinline__ const Accumulator<T> (&sum() const)[kM][kN][4] { return sum_; }

 private:
  MatrixDescriptor a_, b_;
  Accumulator<T> sum_[kM][kN][4] = {};
};

}  // namespace fastgemm::FASTGEMM_TARGET
