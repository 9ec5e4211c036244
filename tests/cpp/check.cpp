#include <cstdio>
#include <exception>

#include "check_parts.h"
#include "core/names.h"

namespace fastgemm::test {
namespace {

int failed = 0;

}  // namespace

int failures() { return failed; }

void report(const Kernel& kernel, DType type, const std::string& what) {
  constexpr int kPrinted = 3;
  static std::string row;
  static int of_row = 0;
  const std::string now =
      std::string(to_string(kernel.op)) + " " + std::string(kernel.name) + " " + std::string(to_string(type));
  if (now != row) row = now, of_row = 0;
  ++failed;
  if (++of_row <= kPrinted) std::printf("\n  %s: %s", row.c_str(), what.c_str());
}

namespace {

// transpose

void check_transpose(const Kernel& kernel, DType type, int64_t batch, int64_t rows, int64_t cols,
                     const Layout& src_layout, const Layout& dst_layout, std::mt19937& random) {
  Block src(type, batch, rows, cols, src_layout), dst(type, batch, cols, rows, dst_layout);
  src.randomize(random);
  TransposeProblem p;
  p.type = type, p.batch = batch, p.rows = rows, p.cols = cols;
  p.src = src.read_only(), p.dst = dst.view();
  const std::string what = text({batch, rows, cols}) + " src" + text(src_layout) + " dst" + text(dst_layout);
  ThreadContext context(random() % 2 ? 3 : 1);
  try {
    kernel.transpose(p, context);
  } catch (const std::exception& e) {
    return report(kernel, type, what + " threw " + e.what());
  }
  for (int64_t t = 0; t < batch; ++t)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j)
        if (std::memcmp(src.element(t, i, j), dst.element(t, j, i), size_t(element_size(type))))
          return report(kernel, type, what + " wrong at " + text({t, i, j}));
  if (!dst.gaps_untouched()) report(kernel, type, what + " wrote between the rows of dst");
}

void check_transpose_row(const Kernel& kernel, DType type, std::mt19937& random) {
  constexpr int64_t sizes[][2] = {{1, 1},   {1, 9},    {9, 1},   {3, 5},     {16, 16},  {17, 33},
                                  {64, 31}, {65, 130}, {200, 7}, {128, 192}, {270, 131}};
  with_some_layouts(kernel, sizes, 8, [&](const int64_t(&size)[2], int layout) {
    // On a GPU: rows of src, or of src and dst, that allow 16-byte accesses.
    const bool aligned_dst = layout < 4 && random() % 2;
    const Layout src{bool(layout & 4), layout & 2 ? 3 : 0, layout & 1, bool(layout & 1)};
    const Layout dst = aligned_dst
                           ? Layout{false, 0, 0, random() % 2 == 0, 64}
                           : Layout{false, int64_t(random() % 3), int64_t(random() % 2), random() % 2 == 0};
    check_transpose(kernel, type, 1 + int64_t(random() % 3), size[0], size[1], src, dst, random);
  });
}

// add

enum class Other { full, row, column, in_place };  // the shape of b; in_place: out is a

void check_add(const Kernel& kernel, DType type, int64_t rows, int64_t cols, const Layout (&layouts)[3],
               Other other, double alpha, std::mt19937& random) {
  const int64_t b_rows = other == Other::row ? 1 : rows, b_cols = other == Other::column ? 1 : cols;
  Block a(type, 1, rows, cols, layouts[0]), b(type, 1, b_rows, b_cols, layouts[1]);
  Block out(type, 1, rows, cols, layouts[2]);
  a.randomize(random), b.randomize(random), out.randomize(random);
  const Block& first = other == Other::in_place ? out : a;
  std::vector<double> x;  // the values of a, before it is overwritten
  std::vector<uint64_t> whole;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      x.push_back(first.number(0, i, j));
      whole.push_back(is_integer(type) ? uint64_t(first.integer(0, i, j)) : 0);
    }
  AddProblem p;
  p.type = type, p.rows = rows, p.cols = cols, p.alpha = alpha;
  p.a = first.read_only(), p.b = b.read_only(), p.out = out.view();
  if (other == Other::row) p.b.row_stride = 0;
  if (other == Other::column) p.b.col_stride = 0;
  const std::string what = text({rows, cols, int(other)}) + " a" + text(layouts[0]) + " b" +
                           text(layouts[1]) + " out" + text(layouts[2]);
  ThreadContext context(random() % 2 ? 3 : 1);
  try {
    kernel.add(p, context);
  } catch (const std::exception& e) {
    return report(kernel, type, what + " threw " + e.what());
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t b_i = b_rows == 1 ? 0 : i, b_j = b_cols == 1 ? 0 : j;
      const double y = alpha * b.number(0, b_i, b_j);
      const double xij = x[size_t(i * cols + j)], want = xij + y, got = out.number(0, i, j);
      bool good = std::fabs(got - want) <= 2 * unit_roundoff(type) * (std::fabs(xij) + std::fabs(y));
      if (is_integer(type))
        good = same_in(
            type, whole[size_t(i * cols + j)] + uint64_t(int64_t(alpha)) * uint64_t(b.integer(0, b_i, b_j)),
            uint64_t(out.integer(0, i, j)));
      if (!good) return report(kernel, type, what + " wrong at " + text({i, j}));
    }
  if (!out.gaps_untouched()) report(kernel, type, what + " wrote between the rows of out");
}

void check_add_row(const Kernel& kernel, DType type, std::mt19937& random) {
  constexpr int64_t sizes[][2] = {{1, 1},   {1, 7},    {1, 1000}, {9, 1},    {5, 33},
                                  {17, 64}, {40, 131}, {64, 128}, {1, 20000}};
  with_some_layouts(kernel, sizes, 8, [&](const int64_t(&size)[2], int layout) {
    for (const Other other : {Other::full, Other::row, Other::column, Other::in_place}) {
      const bool aligned = random() % 3 == 0;
      const auto draw = [&](bool column_major) {
        if (aligned) return Layout{column_major, 0, 0, random() % 2 == 0, 64};
        return Layout{column_major, int64_t(random() % 2 * 3), int64_t(random() % 3), random() % 2 == 0};
      };
      const Layout layouts[] = {draw(layout & 1), draw(layout & 2), draw(layout & 4)};
      check_add(kernel, type, size[0], size[1], layouts, other, random() % 2 ? 1 : -3, random);
    }
  });
}

}  // namespace

std::vector<DType> types_of(const Kernel& kernel) {
  std::vector<DType> types;
  for (int i = 0; i <= int(DType::bits128); ++i)
    if (contains(kernel.dtypes, DType(i))) types.push_back(DType(i));
  return types;
}

void check_row(const Kernel& kernel, DType type, std::mt19937& random) try {
  switch (kernel.op) {
    case Op::gemm:
      return check_gemm_row(kernel, type, random);
    case Op::transpose:
      return check_transpose_row(kernel, type, random);
    case Op::add:
      return check_add_row(kernel, type, random);
  }
} catch (const std::exception& e) {
  report(kernel, type, e.what());
}

}  // namespace fastgemm::test
