// The scales of a product of 8-bit floating-point numbers, as a kernel that multiplies by wgmma reads them. X
// provides the rows of wgmma and Y the columns. A line is a row of A or a column of B. A group is GROUP codes
// along k that may share a scale.
//
//   Scaling::sums      the scales belong to whole lines: they multiply the sums of a finished tile
//   Scaling::blocks    X: a scale for each row and group; Y: one for all columns of a tile
//   Scaling::columns   Y, too: one for each column
//   Scaling::blocks_by_columns   X: one for all rows of a warpgroup; Y: one for each column and group
//
// A stage of the ring has the scales of its groups behind the codes. Those of rows and columns are boxes of a
// float32 matrix (groups, lines); scales in any other layout are copied first (fp8/spread_scales.cuh). The
// one of a block is read in place. Beyond k and the lines, scales are zeros.
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
  int line_stride, group_stride;
  int lines;   // of a block
  int blocks;  // of lines
  int groups;  // in k; a stage beyond has codes of 0

  __device__ __forceinline__ int offset(int line) const {
    return min(line / lines, blocks - 1) * line_stride;
  }
  // Copies the scale at an offset() and `group` to shared memory.
  __device__ __forceinline__ void copy(float* to, int at, int group) const {
    const bool inside = group < groups;
    copy_async<4>(to, data + at + (inside ? group : 0) * group_stride, inside ? 4 : 0);
  }
};

struct OperandScales {
  LineScale x, y;          // Scaling::sums
  TensorMap box_x, box_y;  // the others
  BlockLine blocks;        // the scales of Y with Scaling::blocks, of X with Scaling::blocks_by_columns
};

// Where the scales of a stage lie, in bytes behind its codes: boxes of X and of Y, or single scales, which
// the producer copies by itself.
template <Scaling scaling, int ROWS, int COLUMNS, int GROUP>
struct ScaleBoxes {
  static constexpr int kGroups = 128 / GROUP;  // of a stage
  static constexpr bool kBoxX = scaling == Scaling::blocks || scaling == Scaling::columns;
  static constexpr bool kBoxY = scaling == Scaling::columns || scaling == Scaling::blocks_by_columns;
  // Blocks have 128 lines, or all. A tile of 192 rows may begin in the middle of one.
  static constexpr int kLines = ROWS % 128 == 0 ? 128 : 64;
  static constexpr int kSingles = scaling == Scaling::blocks              ? 1
                                  : scaling == Scaling::blocks_by_columns ? ROWS / kLines
                                                                          : 0;
  static constexpr int kY = kBoxX ? kGroups * ROWS * 4 : 0;                   // the boxes of X begin at 0
  static constexpr int kBytes = kY + (kBoxY ? kGroups * COLUMNS * 4 : 0);     // of boxes; then single scales
  static constexpr int kRoom = (kBytes + kSingles * 4 + 1023) / 1024 * 1024;  // tiles begin at such multiples
  static_assert(kSingles == 0 || kGroups == 1);

  // The offset of single scales of a tile.
  struct Offsets {
    int single[kSingles > 0 ? kSingles : 1];
  };
  __device__ __forceinline__ static Offsets offsets(const OperandScales& scales, int row, int column) {
    Offsets at{};
    if constexpr (kSingles > 0) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kSingles; ++i)
        at.single[i] = scales.blocks.offset(scaling == Scaling::blocks ? column : row + kLines * i);
    }
    return at;
  }
  __device__ __forceinline__ static void load(unsigned char* to, const OperandScales& scales, Barrier* full,
                                              const Offsets& at, int row, int column, int stage) {
    if constexpr (kBoxX) load_box(to, &scales.box_x, full, row, stage * kGroups, 0);
    if constexpr (kBoxY) load_box(to + kY, &scales.box_y, full, column, stage * kGroups, 0);
    if constexpr (kSingles > 0) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kSingles; ++i)
        scales.blocks.copy(reinterpret_cast<float*>(to + kBytes) + i, at.single[i], stage);
      arrive_after_copies(full);
    }
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

  // `x` and `y`: the scales of the group. The thread's first row is `row` of X.
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
