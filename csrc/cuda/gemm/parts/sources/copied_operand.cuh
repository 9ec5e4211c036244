// Copies a matrix that tensor-core kernels cannot read in place to the workspace, where its rows begin at
// multiples of 16 bytes. pack_rows() launches the copy. Kernels launched afterwards on the same stream may
// read it.
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// With batch_stride 0 all matrices of the batch are the same.
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

// Copies the matrices (rows, columns) whose element (r, c) lies at data + r * row_stride + c * column_stride.
template <class T>
PackedRows<T> pack_rows(const T* data, int64_t rows, int64_t columns, int64_t row_stride,
                        int64_t column_stride, int64_t batch_stride, int batch, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
