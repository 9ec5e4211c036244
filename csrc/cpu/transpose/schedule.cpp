// Divides a transpose into blocks, and distributes them over the context's threads.
#include <algorithm>

#include "cpu/transpose/block.h"

namespace fastgemm {
namespace {

// Waking a thread costs a few microseconds: as long as it takes to move about 64 KiB.
constexpr int64_t kLeastTask = 64 << 10;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Columns [col, col + cols) and rows [begin, end) of matrix `index` of the batch.
Block block_of(const TransposeProblem& p, int64_t index, int64_t col, int64_t cols, int64_t begin,
               int64_t end) {
  const int64_t size = element_size(p.type);
  return {
      .src = static_cast<const char*>(p.src.data) + (index * p.src.batch_stride + col) * size,
      .dst = static_cast<char*>(p.dst.data) + (index * p.dst.batch_stride + col * p.dst.row_stride) * size,
      .src_stride = p.src.row_stride * size,
      .dst_stride = p.dst.row_stride * size,
      .rows = p.rows,
      .row_begin = begin,
      .row_end = end,
      .cols = cols};
}

void run_matrices(const TransposeProblem& p, BlockKernel kernel, int64_t first, int64_t last) {
  for (int64_t index = first; index < last; ++index)
    kernel(element_size(p.type), block_of(p, index, 0, p.cols, 0, p.rows));
}

}  // namespace

void run_serial(const TransposeProblem& p, BlockKernel kernel) { run_matrices(p, kernel, 0, p.batch); }

void run_parallel(const TransposeProblem& p, Context& context, BlockKernel kernel) {
  const int64_t size = element_size(p.type), matrix_bytes = std::max<int64_t>(p.rows * p.cols * size, 1);
  const int64_t threads = context.threads();
  if (threads == 1 || p.batch * matrix_bytes < kLeastTask) return run_serial(p, kernel);

  if (p.batch >= 4 * threads) {
    // A task has at least 64 KiB, but at most 1/4 of a thread's share.
    const int64_t fair = std::max<int64_t>(p.batch / (4 * threads), 1);
    const int64_t group = std::clamp<int64_t>(kLeastTask / matrix_bytes, 1, fair);
    return context.parallel(ceil_div(p.batch, group), [&](int64_t task) {
      run_matrices(p, kernel, task * group, std::min(p.batch, (task + 1) * group));
    });
  }

  // Tasks are whole strips of columns of full height, if there are enough of them: each cut through a strip
  // costs reading the rows of one line twice. The last task takes the remainder.
  const int64_t wanted = std::min(8 * threads, p.batch * matrix_bytes / kLeastTask);
  const auto cuts = [&](int64_t cells, int64_t bytes) { return std::max<int64_t>(cells * size / bytes, 1); };
  // A small matrix is cut finer, so that all threads have work.
  const bool small = p.batch * cuts(p.cols, kCutBytes) * cuts(p.rows, kCutBytes) < wanted;
  const int64_t bytes = small ? kStripBytes : kCutBytes, unit = bytes / size;
  const int64_t strips = cuts(p.cols, bytes), units = cuts(p.rows, bytes);
  const int64_t col_tasks = std::min(strips, ceil_div(wanted, p.batch));
  const int64_t row_tasks = std::min(units, ceil_div(wanted, p.batch * col_tasks));
  auto col = [&](int64_t k) { return k == col_tasks ? p.cols : strips * k / col_tasks * unit; };
  auto row = [&](int64_t k) { return k == row_tasks ? p.rows : units * k / row_tasks * unit; };
  context.parallel(p.batch * col_tasks * row_tasks, [&](int64_t task) {
    const int64_t i = task % row_tasks, j = task / row_tasks % col_tasks,
                  index = task / (row_tasks * col_tasks);
    kernel(static_cast<int>(size), block_of(p, index, col(j), col(j + 1) - col(j), row(i), row(i + 1)));
  });
}

}  // namespace fastgemm
