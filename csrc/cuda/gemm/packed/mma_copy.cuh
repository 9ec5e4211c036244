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
  __device__ __forceinline__ explicit MmaCopies(const MmaArguments<T>& g) : g_(g), warp_(warp_index()) {
    const int begin = g.shares.begin(int(blockIdx.x));
    left_ = g.shares.count(int(blockIdx.x));
    tile_ = begin / g.shares.steps, step_ = begin % g.shares.steps;
    place();
  }

  // Asks for the next stage. Addresses are computed anew: kept for all of a tile, they would take too many
  // registers.
  __device__ __forceinline__ void request(unsigned char* stage) {
    if (left_ > 0) {
      copy_weights(stage);
      copy_x_stage<S::BM, S::kLines, S::kThreads>(stage + S::kCodeBytes + S::kScaleBytes, g_.x, g_.m, g_.k,
                                                  fresh(row_), step_ * S::kStageColumns);
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
    const int block = fresh(column_) / 16 + warp_ % S::kGroupWarps * S::kFragments;
    const int k = (step_ * S::kGroups + warp_ / S::kGroupWarps) * S::kColumns;
    if (block * 16 >= g_.n || k >= g_.k) return;
    const unsigned char* const unit =
        g_.b.units + (int64_t(block / 4) * g_.b.columns + k / packed::kColumns) * g_.b.bytes;
    const int column = k % packed::kColumns;
    constexpr int kPieceColumns = 16 * kReadSteps<S::kCode>;
    const unsigned char* const from =
        unit + (column / kPieceColumns * 128 + block % 4 * 32 + fresh_lane()) * 16;
    unsigned char* const to = stage + warp_ * S::kFragments * S::kPieces * S::kPieceBytes + fresh_lane() * 16;
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      FASTGEMM_UNROLL
      for (int piece = 0; piece < S::kPieces; ++piece)
        copy_async_evict_first(to + (f * S::kPieces + piece) * S::kPieceBytes,
                               from + (piece * 128 + f * 32) * 16, 16);
    }
    // A lane copies one piece of the scales and zeros: lanes 0 to 15 for the first 16 rows, the others for
    // the next.
    const int piece = S::kFragments == 2 ? fresh_lane() % 16 : fresh_lane();
    const int f = S::kFragments == 2 ? fresh_lane() / 16 : 0;
    if (piece < g_.slices.pieces)
      copy_async<16>(stage + S::kCodeBytes + (warp_ * S::kFragments + f) * kSliceBytes + piece * 16,
                     unit + packed::unit_code_bytes(g_.b.weight) +
                         slice_offset(piece, block % 4 + f, g_.slices.first_group(column)));
  }

  // Where a piece for 16 rows lies behind the codes of a unit. The numbers of 64 rows have 64 << log bytes.
  __device__ __forceinline__ int slice_offset(int piece, int rows16, int first_group) const {
    const ScaleSlices& s = g_.slices;
    const bool zero = piece >= s.scale_pieces;
    const int i = zero ? piece - s.scale_pieces : piece, log = zero ? s.zero_log : s.scale_log;
    const int in_scales =
        s.by_unit ? i : ((first_group + (i >> log)) * 4 << log) + (rows16 << log) + (i & ((1 << log) - 1));
    return in_scales * 16 + (zero ? g_.b.scale_bytes : 0);
  }

  const MmaArguments<T>& g_;
  int warp_, left_, tile_, step_, row_ = 0, column_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET
