// Divides the lower triangle of a product into blocks, each a product of its own. Together they compute half
// of the elements, and the upper halves of the blocks on the diagonal.
//
//   +--+--+--+--+      a, b, c: blocks of half the size, a quarter and so on; the blocks of one size are a
//   |c |               batch, which one launch computes
//   +--+--+
//   |b |c |
//   +--+--+--+--+
//   |     |c |
//   |  a  +--+--+
//   |     |b |c |
//   +-----+--+--+
#pragma once

#include <type_traits>

#include "core/problem.h"

namespace fastgemm {

// Why the rows that compute one triangle cannot take a problem; null if they can.
inline const char* not_symmetric(const GemmProblem& p) {
  return p.symmetry.known ? nullptr
                          : "the result is not known to be symmetric: b is not a's transpose, in the same "
                            "memory, and symmetric=True was not given";
}

// The size of a block on the diagonal: n divided by a power of two, rounded up, and at least `least` unless n
// is smaller.
inline int64_t diagonal_block(int64_t n, int64_t least) {
  int64_t blocks = 1;
  while (n / (2 * blocks) >= least) blocks *= 2;
  return (n + blocks - 1) / blocks;
}

// The block of C at rows [row, row + rows) and columns [column, column + columns), where a column means
// `parts` columns of C.
inline GemmProblem block_of(const GemmProblem& p, int64_t row, int64_t column, int64_t rows,
                            int64_t columns) {
  const int parts = p.symmetry.parts;
  const auto advanced = [](auto matrix, int64_t elements, DType type) {
    using Byte =
        std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(matrix.data)>>, const char, char>;
    if (matrix.data) matrix.data = static_cast<Byte*>(matrix.data) + elements * element_size(type);
    return matrix;
  };
  GemmProblem block = p;
  block.m = rows, block.n = columns * parts;
  block.a = advanced(p.a, row * p.a.row_stride, p.type);
  block.b = advanced(p.b, column * parts * p.b.col_stride, p.type);
  block.c = advanced(p.c, row * p.c.row_stride + column * parts * p.c.col_stride, p.out_type);
  block.out = advanced(p.out, row * p.out.row_stride + column * parts * p.out.col_stride, p.out_type);
  block.symmetry = {}, block.triangle = 0;
  return block;
}

// `count` blocks of `rows` x `columns`. The first is at (row, column), each next one `step` rows further down
// and `step` columns further right.
struct Blocks {
  int64_t row, column, rows, columns, step, count;
};

// Calls body(blocks) for the part below the diagonal of (n, n), in blocks of `unit` times a power of two.
template <class Body>
void for_each_below(int64_t n, int64_t unit, Body&& body) {
  int64_t half = unit;
  while (2 * half < n) half *= 2;
  for (; n > unit && half >= unit; half /= 2) {
    const int64_t pairs = n / (2 * half), last = 2 * half * pairs, left = n - last - half;
    if (pairs > 0) body(Blocks{half, 0, half, half, 2 * half, pairs});
    if (left > 0) body(Blocks{last + half, last, left, half, 0, 1});
  }
}
// The same for the blocks on the diagonal: `unit` x `unit`; the last one may be smaller.
template <class Body>
void for_each_on_diagonal(int64_t n, int64_t unit, Body&& body) {
  const int64_t whole = n / unit, left = n - whole * unit;
  if (whole > 0) body(Blocks{0, 0, unit, unit, unit, whole});
  if (left > 0) body(Blocks{n - left, n - left, left, left, 0, 1});
}

// Calls body(block, on_diagonal) for blocks of p that together cover its lower triangle. The symmetry of p
// must be known.
template <class Body>
void for_each_block(const GemmProblem& p, int64_t least, Body&& body) {
  const int parts = p.symmetry.parts;
  const auto of = [&](const Blocks& b) {
    const bool is_diagonal = b.row == b.column;
    GemmProblem all = block_of(p, b.row, b.column, b.rows, b.columns);
    if (b.count == 1) return body(all, is_diagonal);
    if (p.batch > 1) {
      for (int64_t i = 0; i < b.count; ++i)
        body(block_of(p, b.row + i * b.step, b.column + i * b.step, b.rows, b.columns), is_diagonal);
      return;
    }
    const auto diagonal = [&](const auto& m) { return b.step * (m.row_stride + parts * m.col_stride); };
    all.batch = b.count;
    all.a.batch_stride = b.step * p.a.row_stride, all.b.batch_stride = b.step * parts * p.b.col_stride;
    all.c.batch_stride = diagonal(p.c), all.out.batch_stride = diagonal(p.out);
    body(all, is_diagonal);
  };
  const int64_t unit = diagonal_block(p.m, least);
  for_each_below(p.m, unit, of);
  for_each_on_diagonal(p.m, unit, of);
}

}  // namespace fastgemm
