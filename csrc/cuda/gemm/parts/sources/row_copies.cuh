// Copies matrices that the tensor memory accelerator cannot read in place, because their rows do not begin at
// multiples of 16 bytes. add() plans a copy, and launch() makes all copies of a product in one kernel, at the
// bandwidth of memory. The main kernel may begin while that kernel runs (programmatic dependent launch,
// LaunchShape::overlaps).
//
//   rows in memory begin anywhere:   |==|#### row_bytes ####|=====|#### row_bytes ####|===
//   those of the copy at lines:      |#### row_bytes ####|.....|#### row_bytes ####|.....|
#pragma once

#include <span>

#include "core/min_max.h"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/sources/copied_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Rows of copies begin at multiples of a line, because L2 delivers only two thirds as fast where the 128-byte
// rows of a box lie across two lines.
inline constexpr int64_t kLineBytes = 128;

// A copy of `matrices` matrices (rows, columns). All strides are in bytes.
struct RowCopy {
  const unsigned char* from;
  unsigned char* to;
  int64_t from_stride, from_column_stride, from_batch_stride, to_stride, to_batch_stride;
  int64_t rows, row_bytes;
  int element_bytes, matrices;
  int element_log;  // element_bytes == 1 << element_log
  // A block copies a piece of several rows. `lanes` threads, a power of two up to 32, copy a piece of a row,
  // 16 bytes each.
  int lanes;
  int64_t pieces, blocks;  // pieces in a row, blocks for a matrix
};

// The copies that one launch makes before the main kernel. It also clears flags for that kernel.
class RowCopies {
 public:
  // Plans a copy, in the workspace, of the matrices whose element (r, c) lies at data + r * row_stride + c *
  // column_stride; launch() makes it. A matrix that the batch shares (batch_stride 0) is copied once, or with
  // `to_each` once for each matrix of the batch.
  template <class T>
  PackedRows<T> add(const T* data, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                    int64_t batch_stride, int batch, Context& context, bool to_each = false) {
    constexpr int64_t kSize = sizeof(T), kLine = kLineBytes / kSize;
    const int64_t pitch = ceil_div(columns, kLine) * kLine, plane = rows * pitch;
    const int matrices = batch_stride == 0 && !to_each ? 1 : batch;
    auto* const to = static_cast<T*>(context.allocate(size_t(matrices * plane * kSize)));
    add({reinterpret_cast<const unsigned char*>(data), reinterpret_cast<unsigned char*>(to),
         row_stride * kSize, column_stride * kSize, batch_stride * kSize, pitch * kSize, plane * kSize, rows,
         columns * kSize, int(kSize), matrices});
    return {to, pitch, batch_stride == 0 && !to_each ? 0 : plane};
  }

  bool empty() const { return count_ == 0; }

  // Launches the copies and clears the flags, if there is anything to do.
  void launch(std::span<uint32_t> flags, Context&) const;

 private:
  static constexpr int kMost = 4;  // A, B, c and the bias
  void add(RowCopy);

  RowCopy copies_[kMost];
  int count_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET
