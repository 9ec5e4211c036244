// The scales of a product of 8-bit floating-point numbers, as a kernel that multiplies by wgmma reads them. X
// provides the rows of wgmma and Y the columns. A line is a row of A or a column of B. A group is GROUP codes
// along k that may share a scale.
//
//   Scaling::sums      the scales belong to whole lines: they multiply the sums of a finished tile
//   Scaling::blocks    X: a scale for each row and group; Y: one for all columns of a tile
//   Scaling::columns   Y, too: one for each column
//   Scaling::blocks_by_columns   X: one for all rows of a warpgroup; Y: one for each column and group
//
// With blocks and columns, scales are a float32 matrix (groups, lines). A stage of the ring has the scales of
// its groups behind the codes, as boxes (groups, rows of X) and (groups, columns of Y). Scales in any other
// layout are copied first (fp8/spread_scales.cuh). Beyond k and the lines, boxes are filled with zeros.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/fragment.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/fp8/scaled_tile.h"

namespace fastgemm::FASTGEMM_TARGET {

using plans::Scaling;

// One float32 scale for each line. Stride 0: one for all.
struct LineScale {
  const float* data;
  int64_t stride;
  int lines;

  __device__ __forceinline__ const float* address(int line) const {
    return data + min(line, lines - 1) * stride;
  }
};

// The scales of blocks of lines and groups.
struct BlockLine {
  const float* data;
  int64_t line_stride, group_stride;
  int lines;   // of a block
  int blocks;  // of lines
  int groups;  // in k; a stage beyond has codes of 0
};

// The scales of a line's block, group after group of k. Each lane of a warp holds the scale of one of 32
// groups, and has already requested the scale of one of the next 32.
class BlockLineScales {
 public:
  __device__ __forceinline__ void begin(const BlockLine& s, int line, int group) {
    const int lane = fresh_lane();
    next_ = s.data + min(line / s.lines, s.blocks - 1) * s.line_stride + (group + lane) * s.group_stride;
    step_ = 32 * s.group_stride, left_ = s.groups - group - lane, turn_ = 0;
    held_ = load(), later_ = load();
  }
  // All lanes call it.
  __device__ __forceinline__ float next() {
    const float scale = __shfl_sync(0xffffffffu, held_, turn_);
    if (++turn_ == 32) turn_ = 0, held_ = later_, later_ = load();
    return scale;
  }

 private:
  __device__ __forceinline__ float load() {
    const float scale = left_ > 0 ? *next_ : 0.0f;
    next_ += step_, left_ -= 32;
    return scale;
  }

  const float* next_;
  int64_t step_;
  int left_, turn_;
  float held_, later_;
};

struct OperandScales {
  LineScale x, y;          // Scaling::sums
  TensorMap box_x, box_y;  // the others
  BlockLine blocks;        // the scales of X with Scaling::blocks_by_columns
};

// Where the scales of a stage lie, in bytes behind its codes.
template <Scaling scaling, int ROWS, int COLUMNS, int GROUP>
struct ScaleBoxes {
  static constexpr int kGroups = 128 / GROUP;  // of a stage
  static constexpr int kX = scaling == Scaling::blocks_by_columns ? 0 : kGroups * ROWS * 4;
  static constexpr int kY = kGroups * COLUMNS * 4;
  static constexpr int kBytes = scaling == Scaling::sums ? 0 : kX + kY;
  static constexpr int kRoom = (kBytes + 1023) / 1024 * 1024;  // tiles begin at multiples of 1024 bytes

  __device__ __forceinline__ static void load(unsigned char* to, const OperandScales& scales, Barrier* full,
                                              int row, int column, int stage) {
    if constexpr (kX > 0) load_box(to, &scales.box_x, full, row, stage * kGroups, 0);
    load_box(to + kX, &scales.box_y, full, column, stage * kGroups, 0);
  }
};

// The scales of a tile's lines that one warpgroup needs, in shared memory.
template <int COLUMNS>
struct alignas(8) LineScales {  // y is read in pairs
  float x[64], y[COLUMNS];
};

// A warpgroup's copy of these scales, which it makes while it multiplies. Two sets are used in turn, because
// the copy for the next tile begins before all warps have read the set of this one.
template <int COLUMNS>
class LineScalesCopy {
 public:
  explicit __device__ __forceinline__ LineScalesCopy(LineScales<COLUMNS> (*sets)[2]) : sets_(sets) {}

  // Begins to copy. `row` is the first row of the warpgroup, and `column` its first column.
  __device__ __forceinline__ void begin(const LineScale& of_rows, const LineScale& of_columns, int row,
                                        int column) {
    auto& to = sets_[warp_index() / 4][turn_];
    const int thread = fresh(int(threadIdx.x)) % 128;
    if (thread < 64) copy_async<4>(&to.x[thread], of_rows.address(row + thread));
    if (thread < COLUMNS) copy_async<4>(&to.y[thread], of_columns.address(column + thread));
    commit_async_copies();
  }
  // Multiplies a thread's sums (64, 2 R) by the scales of their lines: first by the scale of A, which is Y in
  // a `turned` tile.
  template <bool turned, int R>
  __device__ __forceinline__ void multiply(float (&sum)[R]) {
    const int warpgroup = warp_index() / 4;  // no register is left to hold such values
    const auto& from = sets_[warpgroup][turn_];
    turn_ ^= 1;
    wait_async_copies<0>();
    named_barrier(1 + warpgroup, 128);
    const Position first = WgmmaLayout<float>::c(fresh(int(threadIdx.x)) % 128, 0);
    const float x[2] = {from.x[first.row], from.x[first.row + 8]};
    FASTGEMM_UNROLL
    for (int i = 0; i < R; i += 4) {
      const auto y = load_vector<Vector<float, 2>>(from.y + first.column + 2 * i);
      FASTGEMM_UNROLL
      for (int j = 0; j < 4; ++j)
        sum[i + j] = turned ? sum[i + j] * y[j % 2] * x[j / 2] : sum[i + j] * x[j / 2] * y[j % 2];
    }
  }

 private:
  LineScales<COLUMNS> (*sets_)[2];  // of each warpgroup
  int turn_ = 0;
};

// The scales of one group, for the sums of a thread. The scales of rows are read while the products are
// computed. With `early`, the scale of a block is also read then. Otherwise it is read after the products:
// the compiler would place its multiplication by the scales of rows before the last product, which would then
// wait for the reads. Three warpgroups have time for a late read, four do not.
template <Scaling scaling, bool early>
class GroupScales {
 public:
  // Whether add() still reads scales.
  static constexpr bool kReadsLate = scaling == Scaling::columns || scaling == Scaling::blocks_by_columns ||
                                     (scaling == Scaling::blocks && !early);

  // `x` and `y`: the group's boxes. The thread's first row is `row` of X.
  __device__ __forceinline__ GroupScales(const float* x, const float* y, int row, float of_block)
      : y_(y), x_{of_block, of_block} {
    if constexpr (scaling == Scaling::sums || scaling == Scaling::blocks_by_columns) return;
    FASTGEMM_UNROLL
    for (int i = 0; i < 2; ++i) x_[i] = x[row + 8 * i] * (kReadsLate ? 1.0f : *y);
  }

  // sum += the products of the group, times its scales.
  template <int R>
  __device__ __forceinline__ void add(float (&sum)[R], const float (&product)[R]) const {
    if constexpr (scaling == Scaling::sums) {
      FASTGEMM_UNROLL
      for (int i = 0; i < R; ++i) sum[i] += product[i];
    } else if constexpr (scaling == Scaling::blocks) {
      const float by = kReadsLate ? *y_ : 1.0f, x[2] = {x_[0] * by, x_[1] * by};
      FASTGEMM_UNROLL
      for (int i = 0; i < R; ++i) sum[i] = fmaf(product[i], x[i % 4 / 2], sum[i]);
    } else {
      const float* const pairs = y_ + fresh_lane() % 4 * 2;
      FASTGEMM_UNROLL
      for (int i = 0; i < R; i += 4) {
        const auto y = load_vector<Vector<float, 2>>(pairs + 2 * i);
        FASTGEMM_UNROLL
        for (int j = 0; j < 4; ++j) sum[i + j] = fmaf(product[i + j], x_[j / 2] * y[j % 2], sum[i + j]);
      }
    }
  }

 private:
  const float* y_;
  float x_[2] = {};
};

}  // namespace fastgemm::FASTGEMM_TARGET
