#include "core/mirror.h"

#include <algorithm>
#include <stdexcept>

#include "core/table.h"

namespace fastgemm::cpu {
namespace {

constexpr int64_t kTile = 64;  // rows and columns

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

// Fills the elements above the diagonal in the tile that begins at (row, column).
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

// The context of a transpose inside a task: one thread.
class OneThread final : public Context {
 public:
  void* allocate(size_t) override { throw std::logic_error("fastgemm: a transpose asks for no workspace"); }
  void callers_gemm(const GemmProblem&) override {}
  void callers_transpose(const TransposeProblem&) override {}
};

const Kernel& transpose_of_one_thread() {
  static const Kernel& row = *std::ranges::find(cpu_transpose_kernels(), "simd", &Kernel::name);
  return row;
}

// Fills rows [at, at + kTile) above the diagonal with the transpose of the columns below it.
template <class Element>
void mirror_band(Element* x, int64_t stride, int64_t n, int64_t at) {
  mirror_tile(x, stride, n, at, at, Same{});
  const int64_t first = at + kTile;
  if (first >= n) return;
  TransposeProblem t{.rows = n - first, .cols = kTile};
  t.type = DType(int(DType::bits8) + (sizeof(Element) > 1) + (sizeof(Element) > 2) + (sizeof(Element) > 4) +
                 (sizeof(Element) > 8));
  t.src = {x + first * stride + at, stride, 1, 0};
  t.dst = {x + at * stride + first, stride, 1, 0};
  OneThread context;
  transpose_of_one_thread().transpose(t, context);
}

// Calls body(matrix, first row) for all bands of all matrices. Task i gets the i-th band and the i-th from
// the end, so that all tasks have the same amount of work.
template <class Body>
void for_each_band(const Mirror& m, Context& context, Body&& body) {
  const int64_t bands = (m.n + kTile - 1) / kTile, tasks = (bands + 1) / 2;
  context.parallel(m.batch * tasks, [&](int64_t task) {
    const int64_t first = task % tasks, last = bands - 1 - first;
    body(task / tasks, first * kTile);
    if (last != first) body(task / tasks, last * kTile);
  });
}

template <class Element>
void mirror_all(const Mirror& m, Context& context) {
  for_each_band(m, context, [&](int64_t matrix, int64_t row) {
    mirror_band(matrix_of<Element>(m, matrix), m.out.row_stride, m.n, row);
  });
}

template <class Part>
void mirror_conjugates(const Mirror& m, Context& context) {
  for_each_band(m, context, [&](int64_t matrix, int64_t row) {
    Complex<Part>* const x = matrix_of<Complex<Part>>(m, matrix);
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
