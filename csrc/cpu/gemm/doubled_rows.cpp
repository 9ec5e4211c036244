#include "core/doubled_rows.h"

#include <algorithm>
#include <limits>

namespace fastgemm::cpu {
namespace {

template <class Part>
struct Complex {
  Part re, im;
};

constexpr int64_t kTileRows = 32, kTileCols = 64;  // so that whole cache lines of a column-major src are read

template <class Part>
void double_tile(const DoubledRows& d, int64_t matrix, int64_t first_row, int64_t first_col) {
  constexpr Part kSign = Part(Part(1) << (std::numeric_limits<Part>::digits - 1));
  const Part even = d.conjugates ? kSign : Part(0);                    // the sign mask of the imaginary part,
  const Part odd_im = d.turns_back ? kSign : Part(0);                  // and the sign masks of +-i (re, im) =
  const Part odd_re = Part(d.turns_back ? even : Part(even ^ kSign));  // (-+im, +-re)
  const auto* src = static_cast<const Complex<Part>*>(d.src.data) + matrix * d.src.batch_stride;
  auto* dst = static_cast<Complex<Part>*>(d.dst.data) + matrix * d.dst.batch_stride;
  const int64_t end_row = std::min(first_row + kTileRows, d.rows),
                end_col = std::min(first_col + kTileCols, d.cols);
  for (int64_t row = first_row; row < end_row; ++row) {
    Complex<Part>*const b = dst + 2 * row * d.cols, *const ib = b + d.cols;
    const auto* from = src + row * d.src.row_stride;
    for (int64_t col = first_col; col < end_col; ++col) {
      const Complex<Part> x = from[col * d.src.col_stride];
      b[col] = {x.re, Part(x.im ^ even)};
      ib[col] = {Part(x.im ^ odd_re), Part(x.re ^ odd_im)};
    }
  }
}

template <class Part>
void double_all(const DoubledRows& d, Context& context) {
  const int64_t down = (d.rows + kTileRows - 1) / kTileRows, across = (d.cols + kTileCols - 1) / kTileCols;
  const int64_t tiles = d.batch * down * across;
  // A task of 64 tiles writes about 2 MB.
  constexpr int64_t kTask = 64;
  context.parallel((tiles + kTask - 1) / kTask, [&](int64_t task) {
    for (int64_t t = task * kTask; t < std::min((task + 1) * kTask, tiles); ++t)
      double_tile<Part>(d, t / (down * across), t / across % down * kTileRows, t % across * kTileCols);
  });
}

}  // namespace

void double_rows(const DoubledRows& d, Context& context) {
  if (d.part_bytes == 2) return double_all<uint16_t>(d, context);
  if (d.part_bytes == 4) return double_all<uint32_t>(d, context);
  double_all<uint64_t>(d, context);
}

}  // namespace fastgemm::cpu
