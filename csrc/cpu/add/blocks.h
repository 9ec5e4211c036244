// Sums in blocks of a few KiB, for short rows and for results whose rows are not contiguous. Rows shorter
// than two vectors leave most lanes empty, and each costs the beginning and the end of a loop: 4 numbers took
// as long as 40. The rows of a block are therefore copied one behind the other and added as one long row.
// Stores with a stride also keep the compiler from using vectors, so such a sum is formed in a buffer in L1
// first. Level 4 uses this. Compiled once per instruction set.
#pragma once

#include "cpu/add/row.h"
#include "cpu/transpose/block.h"

namespace fastgemm::FASTGEMM_ISA {

inline constexpr int64_t kBlockBytes = 4096;  // of each operand and of the result: L1 holds all three
template <class T>
inline constexpr int64_t kBlock = kBlockBytes / sizeof(T);

// Whether rows are short, so that it pays to copy them. A row of one vector and more that adds a rounded
// alpha * b (add_vectors) keeps doing so.
template <class T>
FASTGEMM_INLINE bool has_short_rows(const AddProblem& p) {
  constexpr int64_t kVector = kLanes<Lane<PartOf<T>>> / PartsOf<T>::kCount;
  const bool rounds_first = PartsOf<T>::kCount == 1 && p.b.col_stride == 0 && p.alpha != 1.0;
  return p.rows > 1 && p.cols < (rounds_first ? kVector : 2 * kVector);
}

// Copies bytes in chunks of Bytes; the last one overlaps the one before it. Fewer bytes go in smaller chunks.
template <int Bytes>
FASTGEMM_INLINE void copy_bytes(const char* from, char* to, int64_t n) {
  struct Chunk {
    char byte[Bytes];
  };
  const auto move = [&](int64_t i) {
    Chunk chunk;
    std::memcpy(&chunk, from + i, Bytes);
    std::memcpy(to + i, &chunk, Bytes);
  };
  if (n >= Bytes) {
    for (int64_t i = 0; i + Bytes < n; i += Bytes) move(i);
    move(n - Bytes);
  } else if constexpr (Bytes > 1) {
    copy_bytes<Bytes / 2>(from, to, n);
  }
}

// Copies a short row.
template <class T>
FASTGEMM_INLINE void copy_row(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n) {
  if (from_stride != 1 || to_stride != 1) return copy_elements(from, from_stride, to, to_stride, n);
  copy_bytes<kVectorBytes>(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to),
                           n * int64_t{sizeof(T)});
}

// Fills rows of a block with one element each. Each row is written in whole vectors of Bytes bytes, whose
// surplus the next row overwrites; the buffer has room for the last one's.
template <int Bytes, class T>
FASTGEMM_INLINE void repeat_elements(const T* from, int64_t from_stride, T* to, int64_t rows, int64_t cols) {
  using Bits = std::conditional_t<
      sizeof(T) == 1, uint8_t,
      std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
  using Repeated = Vector<Bits, Bytes / sizeof(Bits)>;
  for (int64_t i = 0; i < rows; ++i) {
    const T* const x = from + i * from_stride;
    char* const row = reinterpret_cast<char*>(to + i * cols);
    Repeated v;
    if constexpr (sizeof(T) == Bytes) {
      v = load<Repeated>(x);
    } else {
      Bits bits;
      std::memcpy(&bits, x, sizeof bits);
      v = broadcast<Repeated>(bits);
    }
    for (int64_t done = 0; done < cols * int64_t{sizeof(T)}; done += Bytes) store(row + done, v);
  }
}

// One operand of the blocks: read where it lies if rows follow each other in memory, or copied.
template <class T>
struct BlockOperand {
  const ConstMatrix& matrix;
  const int64_t cols;
  const bool lies_flat;
  int64_t filled = 0;  // rows of the buffer that stay, because all rows of the operand are the same
  alignas(kLine) T buffer[kBlock<T> + kVectorBytes / sizeof(T)];

  FASTGEMM_INLINE BlockOperand(const ConstMatrix& m, int64_t width)
      : matrix(m), cols(width), lies_flat(m.col_stride == 1 && m.row_stride == width) {}

  // The rows [i, i + rows), one behind the other.
  FASTGEMM_INLINE const T* rows(int64_t i, int64_t rows) {
    const T* const from = static_cast<const T*>(matrix.data) + i * matrix.row_stride;
    if (lies_flat) return from;
    if (filled >= rows) return buffer;
    if (matrix.row_stride == 0) filled = rows;
    if (matrix.col_stride != 0) {
      for (int64_t r = 0; r < rows; ++r)
        copy_row(from + r * matrix.row_stride, matrix.col_stride, buffer + r * cols, 1, cols);
    } else if (sizeof(T) == 16 || cols * int64_t{sizeof(T)} <= 16) {
      repeat_elements<16>(from, matrix.row_stride, buffer, rows, cols);
    } else if constexpr (sizeof(T) < 16) {
      repeat_elements<kVectorBytes>(from, matrix.row_stride, buffer, rows, cols);
    }
    return buffer;
  }
};

// Passes blocks of short rows to add(a, 1, b, 1, out, count).
template <class T, class Add>
FASTGEMM_INLINE void add_short_rows(const AddProblem& p, Add&& add) {
  BlockOperand<T> a(p.a, p.cols), b(p.b, p.cols);
  alignas(kLine) T sums[kBlock<T>];
  const bool in_place = p.out.col_stride == 1 && p.out.row_stride == p.cols;
  const int64_t most = kBlock<T> / p.cols;
  for (int64_t i = 0; i < p.rows; i += most) {
    const int64_t rows = min(most, p.rows - i);
    T* const out = static_cast<T*>(p.out.data) + i * p.out.row_stride;
    add(a.rows(i, rows), 1, b.rows(i, rows), 1, in_place ? out : sums, rows * p.cols);
    if (in_place) continue;
    for (int64_t r = 0; r < rows; ++r)
      copy_row(sums + r * p.cols, 1, out + r * p.out.row_stride, p.out.col_stride, p.cols);
  }
}

// Adds long rows of a result with strides. Sums that are rounded are formed by vectors in a buffer, except
// where these would round alpha * b first, which the other sums of this function do not.
template <class T, class Add>
FASTGEMM_INLINE void add_to_strided(const AddProblem& p, Add&& add, Accumulator<PartOf<T>> alpha) {
  constexpr int64_t kPiece = 256;
  const bool buffered = kCopiesStrided<T> && (p.b.col_stride != 0 || p.alpha == 1.0);
  T sums[kPiece];
  for (int64_t i = 0; i < p.rows; ++i) {
    const T* const a = static_cast<const T*>(p.a.data) + i * p.a.row_stride;
    const T* const b = static_cast<const T*>(p.b.data) + i * p.b.row_stride;
    T* const out = static_cast<T*>(p.out.data) + i * p.out.row_stride;
    if (!buffered) {
      add_strided(a, p.a.col_stride, b, p.b.col_stride, out, p.out.col_stride, p.cols, alpha);
      continue;
    }
    for (int64_t j = 0; j < p.cols; j += kPiece) {
      const int64_t count = min(kPiece, p.cols - j);
      add(a + j * p.a.col_stride, p.a.col_stride, b + j * p.b.col_stride, p.b.col_stride, sums, count);
      copy_elements(sums, 1, out + j * p.out.col_stride, p.out.col_stride, count);
    }
  }
}

// Adds in blocks. Returns false, and adds nothing, if rows are long and those of the result contiguous.
template <class T, class Add>
FASTGEMM_INLINE bool add_blocks(const AddProblem& p, Add&& add, Accumulator<PartOf<T>> alpha) {
  if (p.cols == 0 || p.rows == 0) return true;
  if (has_short_rows<T>(p))
    add_short_rows<T>(p, add);
  else if (p.out.col_stride != 1)
    add_to_strided<T>(p, add, alpha);
  else
    return false;
  return true;
}

}  // namespace fastgemm::FASTGEMM_ISA
