// Sums in tiles, for operands whose columns are contiguous while rows of the result are. A row of such an
// operand has one number in each cache line, so adding row by row reads every line as often as it has
// numbers: 2000 x 2000 in float32 took ten times as long as two transposes and a sum. A tile of the operand
// is transposed into a buffer in L1 instead, and added from there. Complex numbers are transposed as a whole.
// Levels 4 and 5 share it. Compiled once per instruction set.
#pragma once

#include "cpu/add/row.h"
#include "cpu/transpose/simd.h"

namespace fastgemm::FASTGEMM_ISA {

// Rows and columns of a tile. A run of a column has at most 256 bytes, which memory reads at its full rate
// (kStripBytes); 64 numbers are enough for narrow types, whose tile would not fit in L1 otherwise.
template <class T>
inline constexpr int64_t kTile = min<int64_t>(64, kStripBytes / sizeof(T));

// One operand of the tiles: read where it lies, or transposed.
template <class T>
struct TileOperand {
  const ConstMatrix& matrix;
  bool turned = matrix.row_stride == 1 && matrix.col_stride != 1 && matrix.col_stride != 0;
  alignas(kLine) T buffer[kTile<T> * kTile<T>];

  FASTGEMM_INLINE explicit TileOperand(const ConstMatrix& m) : matrix(m) {}
  // Makes the tile at (i, j) ready.
  FASTGEMM_INLINE void take(int64_t i, int64_t j, int64_t rows, int64_t cols) {
    constexpr int64_t kSize = sizeof(T);
    if (turned)
      transpose_tile<kSize>(reinterpret_cast<const char*>(at(i, j)), matrix.col_stride * kSize,
                            reinterpret_cast<char*>(buffer), kTile<T> * kSize, cols, rows);
  }
  FASTGEMM_INLINE const T* at(int64_t i, int64_t j) const {
    return static_cast<const T*>(matrix.data) + i * matrix.row_stride + j * matrix.col_stride;
  }
  // Row r of the tile at (i, j).
  FASTGEMM_INLINE const T* row(int64_t i, int64_t j, int64_t r) const {
    return turned ? buffer + r * kTile<T> : at(i + r, j);
  }
  FASTGEMM_INLINE int64_t stride() const { return turned ? 1 : matrix.col_stride; }
};

// Adds in tiles, and passes a row of each to add(a, a_stride, b, b_stride, out, count). Returns false, and
// adds nothing, if no operand is one that gains, or rows of out are not contiguous.
template <class T, class Add>
FASTGEMM_INLINE bool add_tiles(const AddProblem& p, Add&& add) {
  TileOperand<T> a(p.a), b(p.b);
  if (!(a.turned || b.turned) || p.out.col_stride != 1 || p.rows == 1) return false;
  for (int64_t i = 0; i < p.rows; i += kTile<T>) {
    const int64_t rows = min(kTile<T>, p.rows - i);
    for (int64_t j = 0; j < p.cols; j += kTile<T>) {
      const int64_t cols = min(kTile<T>, p.cols - j);
      a.take(i, j, rows, cols), b.take(i, j, rows, cols);
      T* out = static_cast<T*>(p.out.data) + i * p.out.row_stride + j;
      for (int64_t r = 0; r < rows; ++r)
        add(a.row(i, j, r), a.stride(), b.row(i, j, r), b.stride(), out + r * p.out.row_stride, cols);
    }
  }
  return true;
}

}  // namespace fastgemm::FASTGEMM_ISA
