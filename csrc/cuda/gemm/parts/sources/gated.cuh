// A source: X are gates and values, two rows for each column of the result. Contract: as BoxSource
// (parts/wgmma_kernel.cuh); a thread has COLUMNS / 2 sums of gates and then as many of values, at the same
// places of the tile, so that it joins them in registers.
//
//   X in a stage, 64 rows each:  | gates of warpgroup 0 | its values | gates of warpgroup 1 | its values |
#pragma once

#include "cuda/gemm/parts/main_loop.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The tile of X: ROWS gates and ROWS values.
template <class T, Major major, int ROWS>
struct GatedTile {
  using Part = OperandTile<T, major, 64>;
  static constexpr bool kGated = true;
  static constexpr int kK = Part::kK, kBytes = 2 * ROWS * 128;

  // Gates from row `gate` of the matrix on, and values from row `value + gate` on.
  __device__ __forceinline__ static void load(unsigned char* to, const TensorMap* map, Barrier* full,
                                              int gate, int value, int k, int plane) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 2 * ROWS / 64; ++i)
      Part::load(to + i * Part::kBytes, map, full, gate + i / 2 * 64 + (i % 2 ? value : 0), k, plane);
  }
};

template <class T, Major major, int ROWS, int COLUMNS>
struct GatedSource {
  using X = GatedTile<T, major, ROWS>;
  using Y = OperandTile<T, Major::k, COLUMNS>;
  using Sum = float;
  static constexpr int kSums = COLUMNS;  // of a thread

  // A warpgroup multiplies two blocks of rows: its gates and its values.
  class Products : RowBlocks<T, typename X::Part, Y, major, Major::k> {
    using Base = RowBlocks<T, typename X::Part, Y, major, Major::k>;

   public:
    using Rows = InOrder;

    __device__ __forceinline__ Products(const unsigned char* stage, int warp)
        : Base(stage + warp / 4 * 2 * X::Part::kBytes, stage + X::kBytes) {}

    template <int R, class Meanwhile, class Done>
    __device__ __forceinline__ void multiply(float (&sum)[R], int bytes, bool accumulate,
                                             Meanwhile&& meanwhile, Done&& before_done) {
      Base::multiply(reinterpret_cast<float(&)[2][R / 2]>(sum), bytes, accumulate, meanwhile, before_done);
    }
  };
  template <class Shared>
  using Consumer = WgmmaConsumer<Shared::kStages, Shared::kStageBytes, Products, Shared::kFences>;
};

}  // namespace fastgemm::FASTGEMM_TARGET
