// The copies of packed_mma's stages by cp.async. Contract: request() asks for the block's next stage, tile
// after tile, so that the ring never runs dry between two tiles. What lies outside x is zero. A row of units
// outside the weight is replaced by the last one.
#pragma once

#include "cuda/gemm/packed/mma_shape.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S, class T>
class MmaCopies {
  using X = typename S::template X<T>;
  static constexpr unsigned kEach = kPer16Bytes<T>, kAcross = S::kColumns / kEach;  // units in a row of x
  static constexpr unsigned kRowsAtOnce = S::kThreads / kAcross, kAtOnce = S::kThreads * 16;
  static_assert(kRowsAtOnce % 8 == 0 && S::BM % kRowsAtOnce == 0);

 public:
  __device__ __forceinline__ explicit MmaCopies(const MmaArguments<T>& g) : g_(g) {
    const int begin = g.shares.begin(int(blockIdx.x));
    left_ = g.shares.count(int(blockIdx.x));
    tile_ = begin / g.shares.steps, step_ = begin % g.shares.steps;
    const unsigned unit = threadIdx.x % kAcross;
    x_to_ = S::kWeightBytes + unit / 8 * X::kBytes + X::offset(threadIdx.x / kAcross, unit % 8);
    place();
  }

  // Asks for the next stage.
  __device__ __forceinline__ void request(unsigned char* stage) {
    if (left_ > 0) {
      copy(stage);
      --left_;
      if (++step_ == g_.shares.steps) {
        step_ = 0, tile_ += g_.shares.apart(int(gridDim.x));
        place();
      }
    }
    commit_async_copies();  // also an empty group, so that groups are counted like stages
  }

 private:
  // Where the next stage of a tile lies.
  __device__ __forceinline__ void place() {
    const MmaPlace<S> at(tile_, g_);
    const int row_unit = at.column / packed::kRows;
    from_ = g_.units + (int64_t(row_unit) * g_.column_units + step_) * g_.unit_bytes + threadIdx.x * 16;
    apart_ = row_unit + 1 < g_.row_units ? int64_t{g_.column_units} * g_.unit_bytes : 0;
    const int row = at.row + int(threadIdx.x / kAcross);
    rows_ = g_.m - row;
    x_ = g_.x.data + row * g_.x.row_stride + step_ * S::kColumns + threadIdx.x % kAcross * kEach;
  }

  __device__ __forceinline__ void copy(unsigned char* stage) {
    const int bytes = g_.unit_bytes - int(threadIdx.x * 16);
    FASTGEMM_UNROLL
    for (int unit = 0; unit < S::kUnits; ++unit) {
      FASTGEMM_UNROLL
      for (int i = 0; i < S::kUnitBytes; i += kAtOnce)
        if (i < bytes)
          copy_async<16>(stage + unit * S::kUnitBytes + i + threadIdx.x * 16, from_ + unit * apart_ + i);
    }
    from_ += g_.unit_bytes;
    const int columns = g_.k - step_ * S::kColumns - int(threadIdx.x % kAcross * kEach);
    const int valid = max(0, min(columns, int(kEach))) * int(sizeof(T));
    FASTGEMM_UNROLL
    for (int i = 0; i < S::BM; i += kRowsAtOnce) {
      const int inside = i < rows_ ? valid : 0;
      copy_async<16>(stage + x_to_ + i * 128, inside > 0 ? x_ + i * g_.x.row_stride : g_.x.data, inside);
    }
    x_ += S::kColumns;
  }

  const MmaArguments<T>& g_;
  int left_, tile_, step_;
  int64_t apart_ = 0;
  int rows_ = 0;  // of x from this thread's first row on
  unsigned x_to_;
  const unsigned char* from_ = nullptr;
  const T* x_ = nullptr;
};

}  // namespace fastgemm::FASTGEMM_TARGET
