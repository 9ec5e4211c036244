// What all tensor-core rungs share: which products they take, the element that the tensor cores multiply, and
// a copy in the workspace of a matrix that they cannot read where it is.
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"
#include "cuda/transpose/levels.h"

namespace fastgemm::FASTGEMM_TARGET {

// What tensor cores multiply: elements of T, float32 as tf32.
template <class T>
using TensorCoreElement = std::conditional_t<std::is_same_v<T, float>, Tf32, T>;

// Matrices whose rows begin at multiples of 16 bytes; batch_stride 0: all of the batch are one.
template <class T>
struct PackedRows {
  const T* data;
  int64_t row_stride, batch_stride;  // in elements
};

template <class T>
bool rows_aligned(const PackedRows<T>& m) {
  constexpr int64_t kUnit = kPer16Bytes<T>;
  return is_aligned(m.data, 16) && m.row_stride % kUnit == 0 && m.batch_stride % kUnit == 0;
}

// Copies the matrices (rows, columns) whose element (r, c) lies at data + r * row_stride + c * column_stride,
// by fastgemm's transpose of the same with rows and columns exchanged.
template <class T>
PackedRows<T> pack_rows(const T* data, int64_t rows, int64_t columns, int64_t row_stride,
                        int64_t column_stride, int64_t batch_stride, int batch, Context& context) {
  constexpr int64_t kUnit = kPer16Bytes<T>;
  TransposeProblem copy;
  copy.type = sizeof(T) == 1   ? DType::bits8
              : sizeof(T) == 2 ? DType::bits16
              : sizeof(T) == 4 ? DType::bits32
                               : DType::bits64;
  copy.batch = batch_stride == 0 ? 1 : batch;
  copy.rows = columns, copy.cols = rows;
  copy.src = {data, columns == 1 ? 1 : column_stride, rows == 1 ? 1 : row_stride, batch_stride};
  const int64_t pitch = ceil_div(columns, kUnit) * kUnit, plane = rows * pitch;
  copy.dst = {context.allocate(size_t(copy.batch * plane) * sizeof(T)), pitch, 1, plane};
  transpose_pipelined(copy, context);
  return {static_cast<const T*>(copy.dst.data), pitch, batch_stride == 0 ? 0 : plane};
}

}  // namespace fastgemm::FASTGEMM_TARGET
