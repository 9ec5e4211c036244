// The transpose of a column-major matrix is a copy of its columns, which are the rows of dst.
#include "cpu/transpose/copy.h"

#include <algorithm>
#include <cstring>

namespace fastgemm {
namespace {

constexpr int64_t kTaskBytes = 256 << 10;

}  // namespace

bool is_row_copy(const TransposeProblem& p) { return p.src.row_stride == 1 || p.rows <= 1; }

void copy_rows(const TransposeProblem& p, Context& context) {
  const int64_t size = element_size(p.type);
  if (p.batch * p.cols * p.rows == 0) return;
  // If neither side has gaps between rows, they are treated as one long row.
  const bool dense = p.src.col_stride == p.rows && p.dst.row_stride == p.rows;
  const int64_t rows = dense ? 1 : p.cols, bytes = (dense ? p.rows * p.cols : p.rows) * size;

  // A task copies several rows, or a part of a long row.
  const int64_t pieces = (bytes + kTaskBytes - 1) / kTaskBytes,
                group = std::max<int64_t>(kTaskBytes / bytes, 1);
  const int64_t groups = (p.batch * rows + group - 1) / group;
  auto task = [&](int64_t index) {
    const int64_t offset = index % pieces * kTaskBytes, first = index / pieces * group;
    const int64_t length = std::min(kTaskBytes, bytes - offset),
                  last = std::min(first + group, p.batch * rows);
    for (int64_t r = first; r < last; ++r) {
      const int64_t matrix = r / rows, row = r % rows;
      std::memcpy(static_cast<char*>(p.dst.data) +
                      (matrix * p.dst.batch_stride + row * p.dst.row_stride) * size + offset,
                  static_cast<const char*>(p.src.data) +
                      (matrix * p.src.batch_stride + row * p.src.col_stride) * size + offset,
                  length);
    }
  };
  if (groups * pieces == 1) return task(0);
  context.parallel(groups * pieces, task);
}

}  // namespace fastgemm
