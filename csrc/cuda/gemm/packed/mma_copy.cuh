// The copies of packed_mma's stages by cp.async. Contract: request() asks for the block's next stage, tile
// after tile, so that the ring never runs dry between two tiles. What lies outside x is zero. Rows of units
// outside the weight are replaced by the last one, and units beyond k are not copied (MmaProducts knows).
#pragma once

#include "cuda/gemm/packed/mma_shape.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S, class T>
class MmaCopies {
  using X = typename S::template X<T>;
  static constexpr int kEach = kPer16Bytes<T>,
                       kAcross = S::kColumns / kEach;  // units of 16 bytes in a row of x
  static constexpr int kRowsAtOnce = S::kThreads / kAcross;
  static_assert(kRowsAtOnce % 8 == 0 && S::BM % kRowsAtOnce == 0);

 public:
  __device__ __forceinline__ explicit MmaCopies(const MmaArguments<T>& g) : g_(g) {
    const int begin = g.shares.begin(int(blockIdx.x));
    left_ = g.shares.count(int(blockIdx.x));
    tile_ = begin / g.shares.steps, step_ = begin % g.shares.steps;
    place();
  }

  // Asks for the next stage. Addresses are computed anew: kept, they would take too many registers.
  __device__ __forceinline__ void request(unsigned char* stage) {
    if (left_ > 0) {
      copy_weights(stage);
      copy_x(stage + S::kWeightBytes);
      --left_;
      if (++step_ == g_.shares.steps) {
        step_ = 0, tile_ += g_.shares.apart();
        place();
      }
    }
    commit_async_copies();  // also an empty group, so that groups are counted like stages
  }

 private:
  __device__ __forceinline__ void place() {
    const MmaPlace<S> at(tile_, g_);
    row_ = at.row, row_unit_ = at.column / packed::kRows;
  }

  __device__ __forceinline__ void copy_weights(unsigned char* stage) {
    const int first = step_ * S::kUnits, bytes = min(S::kUnits, g_.column_units - first) * g_.unit_bytes;
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      const int row = min(row_unit_ + f, g_.row_units - 1);
      const unsigned char* const from = g_.units + (int64_t(row) * g_.column_units + first) * g_.unit_bytes;
      FASTGEMM_NO_UNROLL
      for (int i = fresh(int(threadIdx.x)) * 16; i < bytes; i += S::kThreads * 16)
        copy_async_evict_first(stage + f * S::kRowBytes + i, from + i, 16);
    }
  }

  __device__ __forceinline__ void copy_x(unsigned char* to) {
    const int thread = fresh(int(threadIdx.x)), unit = thread % kAcross, row = row_ + thread / kAcross;
    const int column = step_ * S::kColumns + unit * kEach;
    const int valid = max(0, min(g_.k - column, kEach)) * int(sizeof(T));
    const T* const from = g_.x.data + row * g_.x.row_stride + column;
    to += unit / 8 * X::kBytes + X::offset(thread / kAcross, unit % 8);
    FASTGEMM_UNROLL
    for (int i = 0; i < S::BM; i += kRowsAtOnce) {
      const int bytes = row + i < g_.m ? valid : 0;
      copy_async<16>(to + i * 128, bytes > 0 ? from + i * g_.x.row_stride : g_.x.data, bytes);
    }
  }

  const MmaArguments<T>& g_;
  int left_, tile_, step_, row_ = 0, row_unit_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET
