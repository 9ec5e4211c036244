#include "core/mirror.h"

#include <algorithm>

#include "core/table.h"
#include "core/triangle.h"

namespace fastgemm::cpu {
namespace {

constexpr int64_t kTile = 64;  // elements a side

template <class Part>
struct Complex {
  Part re, im;
};

struct Same {
  template <class T>
  T operator()(const T& x) const {
    return x;
  }
};
struct Conjugate {
  template <class Part>
  Complex<Part> operator()(const Complex<Part>& x) const {
    return {x.re, Part(x.im ^ kSign<Part>)};
  }
  template <class Part>
  static constexpr Part kSign = Part(Part(1) << (8 * sizeof(Part) - 1));
};

// What lies above the diagonal in the tile whose first row and column these are.
template <class Element, class Of>
void mirror_tile(Element* x, int64_t stride, int64_t n, int64_t row, int64_t column, const Of& of) {
  for (int64_t i = row; i < std::min(row + kTile, n); ++i)
    for (int64_t j = std::max(column, i + 1); j < std::min(column + kTile, n); ++j)
      x[i * stride + j] = of(x[j * stride + i]);
}

template <class Element>
Element* matrix_of(const Mirror& m, int64_t index) {
  return static_cast<Element*>(m.out.data) + index * m.out.batch_stride;
}

// Tiles on the diagonal one by one; what lies off it is the transpose of what lies across.
template <class Element>
void mirror_all(const Mirror& m, Context& context) {
  const int64_t tiles = (m.n + kTile - 1) / kTile;
  context.parallel(m.batch * tiles, [&](int64_t task) {
    const int64_t at = task % tiles * kTile;
    mirror_tile(matrix_of<Element>(m, task / tiles), m.out.row_stride, m.n, at, at, Same{});
  });
  const Kernel& transpose = cpu_transpose_kernels().back();
  for_each_below(m.n, kTile, [&](const Blocks& b) {
    for (int64_t index = 0; index < m.batch; ++index) {
      Element* const x = matrix_of<Element>(m, index);
      TransposeProblem t{.batch = b.count, .rows = b.rows, .cols = b.columns};
      t.type = DType(int(DType::bits8) + (sizeof(Element) > 1) + (sizeof(Element) > 2) +
                     (sizeof(Element) > 4) + (sizeof(Element) > 8));
      const int64_t step = b.step * (m.out.row_stride + 1);
      t.src = {x + b.row * m.out.row_stride + b.column, m.out.row_stride, 1, step};
      t.dst = {x + b.column * m.out.row_stride + b.row, m.out.row_stride, 1, step};
      transpose.transpose(t, context);
    }
  });
}

template <class Part>
void mirror_conjugates(const Mirror& m, Context& context) {
  using Element = Complex<Part>;
  const int64_t tiles = (m.n + kTile - 1) / kTile;
  context.parallel(m.batch * tiles, [&](int64_t task) {
    Element* const x = matrix_of<Element>(m, task / tiles);
    const int64_t row = task % tiles * kTile;
    for (int64_t i = row; i < std::min(row + kTile, m.n); ++i) x[i * (m.out.row_stride + 1)].im = 0;
    for (int64_t column = row; column < m.n; column += kTile)
      mirror_tile(x, m.out.row_stride, m.n, row, column, Conjugate{});
  });
}

}  // namespace

void mirror(const Mirror& m, Context& context) {
  if (m.batch * m.n == 0) return;
  if (m.conjugated) {
    if (m.bytes == 4) return mirror_conjugates<uint16_t>(m, context);
    return m.bytes == 8 ? mirror_conjugates<uint32_t>(m, context) : mirror_conjugates<uint64_t>(m, context);
  }
  switch (m.bytes) {
    case 1:
      return mirror_all<uint8_t>(m, context);
    case 2:
      return mirror_all<uint16_t>(m, context);
    case 4:
      return mirror_all<uint32_t>(m, context);
    case 8:
      return mirror_all<uint64_t>(m, context);
    default:
      return mirror_all<Complex<uint64_t>>(m, context);
  }
}

}  // namespace fastgemm::cpu
