// Boxes that end where a group of rows ends. Contract: ragged_map() describes a matrix whose rows are cut
// into groups, and box_row() and box_plane() are the coordinates of a row of a group. Stores leave out the
// rows that a box has beyond the group. (Triton's ragged descriptors have the same aim, by tensors of five
// dimensions.)
//
// The map shows every row many times: plane p is the matrix moved by p rows. A tensor ends after row L - 1 of
// each of its planes, so a group that ends at row e of the matrix is seen through the plane whose row L - 1
// is row e - 1:
//
//   matrix        0 1 2 3 4 5 6 7              L = 8, a group of the rows 2, 3, 4 (e = 5)
//   plane 5   . . 0 1 2 3 4 5 |                row x of plane p is row x + p - L of the matrix;
//             0 1 2 3 4 5 6 7                  the group begins at row 5 = L - 3 and ends with the plane
//
// The first element of such a map lies L rows before the matrix. Nothing is stored there, because a group's
// rows are rows of the matrix. Loads have a map that begins with the matrix, begun_map(): plane p begins with
// row p, and a group is seen through the plane of its first row. Rows of a box before that row have negative
// coordinates, and the TMA fills them with zeros. So boxes are counted back from the group's last row. (Loads
// through ragged_map() failed with an illegal address on an H200, if no memory was mapped before the matrix.)
#pragma once

#include "core/groups.h"
#include "cuda/device/tma.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// `matrix` has one plane.
inline TensorMap ragged_map(TensorShape matrix) {
  matrix.data = static_cast<const char*>(matrix.data) - matrix.rows * matrix.row_stride_bytes;
  matrix.planes = matrix.rows + 1, matrix.plane_stride_bytes = matrix.row_stride_bytes;
  return make_tensor_map(matrix);
}

inline TensorMap begun_map(TensorShape matrix) {
  matrix.planes = matrix.rows, matrix.plane_stride_bytes = matrix.row_stride_bytes;
  return make_tensor_map(matrix);
}

// The coordinates of row `row` of a group, in a matrix of `rows` rows.
__device__ __forceinline__ int box_row(const GroupRange& group, int rows, int row) {
  return rows - group.size() + row;
}
__device__ __forceinline__ int box_plane(const GroupRange& group) { return group.end; }

}  // namespace fastgemm::FASTGEMM_TARGET
