// The copies of packed_mma's stages by cp.async. Contract: request() asks for the block's next stage, tile
// after tile, so that the ring never runs dry between two tiles. Codes and scales go to memory of the warp
// that multiplies them, x to memory of the block; what lies outside x is zero, and units outside the weight
// are not copied (MmaStages::active()).
#pragma once

#include "cuda/gemm/packed/mma_shape.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S, class T>
class MmaCopies {
 public:
  __device__ __forceinline__ MmaCopies(const MmaArguments<T>& g, unsigned char* ring)
      : g_(g), ring_(ring), lane_(int(threadIdx.x) % 32), warp_(warp_index()) {
    const int begin = g.shares.begin(int(blockIdx.x));
    left_ = g.shares.count(int(blockIdx.x));
    tile_ = begin / g.shares.steps, step_ = begin % g.shares.steps;
    find_slice();
    place();
  }

  __device__ __forceinline__ void request() {
    if (left_ > 0) {
      unsigned char* const stage = ring_ + at_ * S::kStageBytes;
      copy_weights(stage);
      copy_x_stage<S::BM, S::kLines, S::kThreads>(stage + S::kCodeBytes + S::kScaleBytes, g_.x, g_.m, g_.k,
                                                  row_, step_ * S::kStageColumns);
      at_ = at_ == S::kStages - 1 ? 0 : at_ + 1;
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
    row_ = at.row, column_ = at.column;
  }

  // The warp's blocks of 16 rows lie in one unit.
  __device__ __forceinline__ void copy_weights(unsigned char* stage) {
    const int block = column_ / 16 + warp_ % S::kGroupWarps * S::kFragments;
    const int k = (step_ * S::kGroups + warp_ / S::kGroupWarps) * S::kColumns;
    if (block * 16 >= g_.n || k >= g_.k) return;
    const unsigned char* const unit =
        g_.b.units + (int64_t(block / 4) * g_.b.columns + k / packed::kColumns) * g_.b.bytes;
    const int column = k % packed::kColumns;
    constexpr int kPieceColumns = 16 * kReadSteps<S::kCode>;
    const unsigned char* const from = unit + (column / kPieceColumns * 128 + block % 4 * 32 + lane_) * 16;
    unsigned char* const to = stage + warp_ * S::kFragments * S::kPieces * S::kPieceBytes + lane_ * 16;
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      FASTGEMM_UNROLL
      for (int piece = 0; piece < S::kPieces; ++piece)
        copy_async_evict_first(to + (f * S::kPieces + piece) * S::kPieceBytes,
                               from + (piece * 128 + f * 32) * 16, 16);
    }
    if (slice_piece_ < g_.slices.pieces) {
      const int rows16 = block % 4 + slice_fragment();
      copy_async<16>(
          stage + S::kCodeBytes + (warp_ * S::kFragments + slice_fragment()) * kSliceBytes +
              slice_piece_ * 16,
          unit + slice_ + g_.slices.first_group(column) * slice_stride_ + rows16 * (slice_stride_ / 4));
    }
  }

  // A lane copies one piece of the scales and zeros: lanes 0 to 15 of the first 16 rows, the others of the
  // next.
  __device__ __forceinline__ int slice_fragment() const { return S::kFragments == 2 ? lane_ / 16 : 0; }
  __device__ __forceinline__ void find_slice() {
    const ScaleSlices& s = g_.slices;
    slice_piece_ = S::kFragments == 2 ? lane_ % 16 : lane_;
    const bool zero = slice_piece_ >= s.scale_pieces;
    const int i = zero ? slice_piece_ - s.scale_pieces : slice_piece_;
    slice_ = packed::unit_code_bytes(g_.b.weight) + (zero ? g_.b.scale_bytes : 0);
    slice_stride_ = zero ? s.zero_stride : s.scale_stride;
    const int each = max(slice_stride_ / 64, 1);  // pieces of 16 rows of a group
    slice_ += s.by_unit ? i * 16 : i / each * slice_stride_ + i % each * 16;
  }

  const MmaArguments<T>& g_;
  unsigned char* ring_;
  int lane_, warp_, left_, tile_, step_, row_ = 0, column_ = 0, at_ = 0;
  int slice_piece_, slice_,
      slice_stride_;  // of the lane: which one, where it lies in a unit, from group to group
};

}  // namespace fastgemm::FASTGEMM_TARGET
