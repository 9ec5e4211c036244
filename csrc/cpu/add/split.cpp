// Divides an addition among threads.
#include <algorithm>

#include "cpu/add/levels.h"

namespace fastgemm {
namespace {

// Waking a thread costs a few microseconds, the time to move about 64 KiB.
constexpr int64_t kTaskBytes = 64 << 10;

template <class M>
M moved(M m, int64_t row, int64_t col, int64_t size) {
  using Byte = std::conditional_t<std::is_same_v<M, Matrix>, char, const char>;
  m.data = static_cast<Byte*>(m.data) + (row * m.row_stride + col * m.col_stride) * size;
  return m;
}

AddProblem piece(const AddProblem& p, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  const int64_t size = element_size(p.type);
  AddProblem q = p;
  q.rows = rows, q.cols = cols;
  q.a = moved(p.a, row, col, size), q.b = moved(p.b, row, col, size), q.out = moved(p.out, row, col, size);
  return q;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void add_parallel(const AddProblem& p, Context& context, AddKernel kernel) {
  const int64_t bytes = p.rows * p.cols * element_size(p.type) * 3, threads = context.threads();
  if (threads == 1 || bytes < 2 * kTaskBytes) return kernel(p);
  const int64_t wanted = std::min(4 * threads, bytes / kTaskBytes);
  const int64_t row_tasks = std::min(p.rows, wanted), col_tasks = ceil_div(wanted, row_tasks);
  const int64_t height = ceil_div(p.rows, row_tasks);
  // Each part has whole cache lines, so that two threads do not write to one line.
  const int64_t width = ceil_div(ceil_div(p.cols, col_tasks), 64) * 64;
  const int64_t down = ceil_div(p.rows, height), across = ceil_div(p.cols, width);
  context.parallel(down * across, [&](int64_t task) {
    const int64_t row = task / across * height, col = task % across * width;
    kernel(piece(p, row, std::min(height, p.rows - row), col, std::min(width, p.cols - col)));
  });
}

}  // namespace fastgemm
