// Matrices whose rows the tensor memory accelerator cannot read where they are, because they do not begin at
// multiples of 16 bytes: one launch before the main kernel copies all of a product, at the speed of memory,
// to rows that do. The main kernel may begin meanwhile (LaunchShape::overlaps).
#pragma once

#include <algorithm>
#include <span>

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/copied_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Rows of copies begin at multiples of that: of boxes whose rows of 128 bytes lie across two lines L2
// delivers two thirds (bf16 at 4096: 282 us in place of 175).
inline constexpr int64_t kLineBytes = 128;

// Matrices (rows, columns), all strides in bytes.
struct RowCopy {
  const unsigned char* from;
  unsigned char* to;
  int64_t from_stride, from_column_stride, from_batch_stride, to_stride, to_batch_stride;
  int64_t rows, row_bytes;
  int element_bytes, matrices;
  int element_log;  // 1 << element_log bytes
  // A block copies a piece of some rows: lanes (a power of two, at most 32) have a 16-byte unit each of a
  // row.
  int lanes;
  int64_t pieces, blocks;  // pieces of a row, blocks of a matrix
};

// What is to be copied, and flags to be cleared for the main kernel.
class RowCopies {
 public:
  // A copy in the workspace of the matrices whose element (r, c) lies at data + r * row_stride + c *
  // column_stride; it is there after launch(). One that the batch shares (batch_stride 0) stays one, unless
  // `to_each`.
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

  // False where there is nothing to do.
  bool launch(std::span<uint32_t> flags, Context&) const;

 private:
  static constexpr int kMost = 3;  // A, B and the matrix that is added
  void add(RowCopy);

  RowCopy copies_[kMost];
  int count_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET
