// A producer whose Y are rows of a matrix by index: the tokens of an expert, as they lie, without a copy in
// the order of the experts. The TMA of Hopper would take 50 cycles for each row. So all four warps of the
// producer's warpgroup copy rows by cp.async, while one thread asks for the boxes of X. Contract: the `full`
// barriers of the ring expect kProducers arrivals; X::load() as in RowsOrigin (parts/schedules/groups.cuh).
//
//   row of Y in a stage, 128 bytes     | unit 0 | unit 1 | ... | unit 7 |    swizzled as the TMA would
//   a thread copies                    unit t % 8 of rows t / 8, t / 8 + 16, ...
//
// No thread waits for its copies: the barrier counts a thread when they have landed.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/operand_tile.cuh"
#include "cuda/gemm/parts/ring.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Where the rows of Y are: row i is row index[i] of a matrix of `count` rows, which begin at multiples of 16
// bytes and have `bytes` bytes each. An index outside of the matrix gives a row of zeros.
struct GatheredRows {
  const int32_t* index;  // null: the rows are not gathered
  const unsigned char* data;
  uint32_t pitch;  // in bytes
  int bytes, count;
};

template <int STAGES, int STAGE_BYTES, class X, class Y, int ROWS>
class GatheringProducer {
 public:
  static constexpr int kThreads = 128, kProducers = 1 + kThreads;

  __device__ __forceinline__ GatheringProducer(unsigned char* stages, RingBarriers<STAGES>& ring,
                                               const TensorMap& x, const GatheredRows& rows, int member)
      : stages_(stages), ring_(ring), x_(x), rows_(rows), member_(member) {}

  // Fills stages [begin, end) of a tile. `from` has origin.load_x(), the first row y, the rows of Y that
  // exist from there on, and the boxes of 64 rows that are multiplied.
  template <class Origin>
  __device__ __forceinline__ void fill(const Origin& from, int begin, int end) {
    const int unit = member_ % 8, first = member_ / 8;
    int32_t index[kPasses];
    FASTGEMM_UNROLL
    for (int i = 0; i < kPasses; ++i) {
      const int row = first + i * kRowsOfPass;
      const int32_t given = row < from.rows ? rows_.index[from.y + row] : -1;
      index[i] = given < rows_.count ? given : -1;
    }
    // Rows of a pass are multiples of 8 apart, so all have the same swizzle.
    const int place = first * 128 + ((unit ^ (first % 8)) * 16);
    FASTGEMM_NO_UNROLL
    for (int step = begin; step < end; ++step) {
      wait_phase(&ring_.empty[at_.stage], at_.phase);
      unsigned char* const stage = stages_ + at_.stage * STAGE_BYTES;
      if (member_ == 0) {
        arrive_expecting(&ring_.full[at_.stage], X::kBytes);
        from.template load_x<X>(stage, &x_, &ring_.full[at_.stage], step);
      }
      const int column = step * 128 + unit * 16, valid = min(max(rows_.bytes - column, 0), 16);
      const unsigned char* const from_row = rows_.data + (valid > 0 ? column : 0);
      unsigned char* const to = stage + X::kBytes + place;
      FASTGEMM_UNROLL
      for (int i = 0; i < kPasses; ++i) {
        if (i * kRowsOfPass >= from.boxes * 64) break;
        const int row = fresh(index[i]);  // or the compiler would hold the addresses of all rows
        copy_async<16>(to + i * kRowsOfPass * 128, from_row + uint64_t(uint32_t(max(row, 0))) * rows_.pitch,
                       row >= 0 ? valid : 0);
      }
      arrive_after_copies(&ring_.full[at_.stage]);
      at_.advance();
    }
  }

 private:
  static constexpr int kRowsOfPass = kThreads / 8, kPasses = ROWS / kRowsOfPass;

  unsigned char* stages_;
  RingBarriers<STAGES>& ring_;
  const TensorMap& x_;
  const GatheredRows& rows_;
  int member_;
  RingPosition<STAGES> at_{0, 1};  // a new stage counts as empty
};

}  // namespace fastgemm::FASTGEMM_TARGET
