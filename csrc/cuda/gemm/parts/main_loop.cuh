// The main loop of kernels in which one thread asks for the stages of a tile and warpgroups multiply them.
// Contract: StageProducer fills stages of the operands X (rows of wgmma) and Y (its columns), and
// WgmmaConsumer (wgmma_consumer.cuh) multiplies them in that order. A warpgroup that has several blocks of
// 64 rows multiplies them by RowBlocks:
//
//              Y: kColumns                     one instruction: 64 rows x kColumns
//            +-------------+
//   X: 64    |   sum[0]    |  one warpgroup    Both blocks read the same Y, so one warpgroup multiplies a
//      64    |   sum[1]    |                   stage, and no warpgroup waits for another.
//            +-------------+
#pragma once

#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/wgmma_consumer.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Where a tile begins: the first row of X and of Y, and their planes in the batch.
struct StageOrigin {
  int x, y, plane_x, plane_y;
};

// Asks for stages, one after another, in the elected thread. A stage has `bytes` bytes. L2 evicts an operand
// first that is read only once (evict_x, evict_y).
template <int STAGES, int STAGE_BYTES, class X, class Y, bool evict_x = false, bool evict_y = false>
class StageProducer {
 public:
  __device__ __forceinline__ StageProducer(unsigned char* stages, RingBarriers<STAGES>& ring,
                                           const TensorMap& x, const TensorMap& y,
                                           int bytes = X::kBytes + Y::kBytes)
      : stages_(stages), ring_(ring), x_(x), y_(y), bytes_(bytes) {}

  // Fills stages [begin, end) of a tile. before() is called before each of them.
  template <class Before>
  __device__ __forceinline__ void fill(const StageOrigin& from, int begin, int end, bool elected,
                                       Before&& before) {
    FASTGEMM_NO_UNROLL
    for (int step = begin; step < end; ++step) {
      before();
      fill_next(elected, bytes_, [&](unsigned char* to, Barrier* full) {
        X::template load<evict_x>(to, &x_, full, from.x, step * X::kK, from.plane_x);
        Y::template load<evict_y>(to + X::kBytes, &y_, full, from.y, step * Y::kK, from.plane_y);
      });
    }
  }
  __device__ __forceinline__ void fill(const StageOrigin& from, int begin, int end, bool elected) {
    fill(from, begin, end, elected, [] {});
  }
  // Fills the next stage with something else: load(to, barrier) issues copies of `bytes` bytes in all.
  template <class Load>
  __device__ __forceinline__ void fill_next(bool elected, int bytes, Load&& load) {
    ring_.fill(at_, elected, bytes,
               [&](int stage, Barrier* full) { load(stages_ + stage * STAGE_BYTES, full); });
  }

 private:
  unsigned char* stages_;
  RingBarriers<STAGES>& ring_;
  const TensorMap &x_, &y_;
  int bytes_;
  RingPosition<STAGES> at_{0, 1};  // a new stage counts as empty
};

// What WgmmaConsumer multiplies by: sum[i] (64, kColumns) += rows [64 i, 64 i + 64) of X times Y.
template <class E, class X, class Y, Major x_major, Major y_major>
class RowBlocks {
 public:
  using Rows = InOrder;

  __device__ __forceinline__ RowBlocks(const unsigned char* stage, int /* warp */)
      : RowBlocks(stage, stage + X::kBytes) {}
  __device__ __forceinline__ RowBlocks(const unsigned char* x, const unsigned char* y)
      : x_(X::descriptor(x)), y_(Y::descriptor(y)) {}

  template <int BLOCKS, int R, class Meanwhile, class Done>
  __device__ __forceinline__ void multiply(Accumulator<E> (&sum)[BLOCKS][R], int bytes, bool accumulate,
                                           Meanwhile&& meanwhile, Done&& before_done) {
    wgmma_fence(sum);
    FASTGEMM_UNROLL
    for (int i = 0; i < X::kSteps; ++i) {
      FASTGEMM_UNROLL
      for (int block = 0; block < BLOCKS; ++block)
        wgmma<E, x_major, y_major>(sum[block], x_.at(bytes + X::step(i) + block * 64 * 128),
                                   y_.at(bytes + Y::step(i)), accumulate || i > 0);
    }
    wgmma_commit();
    meanwhile();
    wgmma_wait<1>();
    before_done();
  }

 private:
  MatrixDescriptor x_, y_;
};

}  // namespace fastgemm::FASTGEMM_TARGET
