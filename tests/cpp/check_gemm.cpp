#include <cstdio>
#include <exception>

#include "check_parts.h"

namespace fastgemm::test {
namespace {

struct GemmCase {
  DType type, out_type;
  int64_t batch, m, n, k;
  Layout a, b, out;
  double alpha, beta;
  bool in_place;          // c is out
  bool extremes = false;  // operands have the values of set_extremes()
};

void set(const Block& x, int64_t i, int64_t j, DType type, uint64_t bits) {
  std::memcpy(x.element(0, i, j), &bits, size_t(element_size(type)));
}

// Writes NaN and infinities to some rows and columns, at several places along k. For integers it writes the
// number with the largest magnitude, which gives the largest products: -128 x -128.
void set_extremes(const Block& a, const Block& b, const GemmCase& g) {
  const uint64_t top = uint64_t{1} << (8 * element_size(g.type) - 1);
  if (is_integer(g.type)) {
    for (int64_t k = 0; k < g.k; ++k) {
      for (int64_t i = 0; i < g.m; ++i) set(a, i, k, g.type, top);
      for (int64_t j = 0; j < g.n; ++j) set(b, k, j, g.type, top);
    }
    return;
  }
  const uint64_t infinity = g.type == DType::f64   ? 0x7ff0000000000000
                            : g.type == DType::f32 ? 0x7f800000
                            : g.type == DType::f16 ? 0x7c00
                                                   : 0x7f80;
  for (int64_t i = 2; i < g.m; i += 3) set(a, i, i % g.k, g.type, i % 2 ? infinity : infinity | top);
  set(a, 1, g.k - 1, g.type, infinity | infinity >> 1);  // NaN
  set(b, 0, g.n - 1, g.type, infinity | infinity >> 1);
  set(b, g.k - 1, g.n / 2, g.type, infinity);
}

struct Element {
  double sum = 0, magnitude = 0;
};

class Reference {
 public:
  Reference(const GemmCase& g, const Block& a, const Block& b)
      : k_(g.k), a_(size_t(g.m * g.k)), b_(size_t(g.n * g.k)), a_block_(a), b_block_(b) {}

  void take_batch(int64_t t, int64_t m, int64_t n) {
    for (int64_t k = 0; k < k_; ++k) {
      for (int64_t i = 0; i < m; ++i) a_[size_t(i * k_ + k)] = a_block_.number(t, i, k);
      for (int64_t j = 0; j < n; ++j) b_[size_t(j * k_ + k)] = b_block_.number(t, k, j);
    }
  }
  Element at(int64_t i, int64_t j) const {
    Element e;
    for (int64_t k = 0; k < k_; ++k) {
      const double a = a_[size_t(i * k_ + k)], b = b_[size_t(j * k_ + k)];
      e.sum += a * b, e.magnitude += std::fabs(a * b);
    }
    return e;
  }

 private:
  int64_t k_;
  std::vector<double> a_, b_;  // one matrix of the batch: (m, k) and (n, k)
  const Block &a_block_, &b_block_;
};

// The largest relative error of a product of two float32 factors, beyond the rounding of the product itself
// (docs/precision.md).
double product_error(Precision precision) {
  switch (precision) {
    case Precision::tf32:
      return 0x1p-10;
    case Precision::bf16x3:
      return 0x1p-15;
    case Precision::fp16x3:
      return 0x1p-21;
    default:
      return 0;
  }
}

// The bound of tests/support/reference.py. Errors of single products do not add up linearly.
bool right(const GemmCase& g, Precision precision, const Element& e, double c, double got) {
  const double addend = g.beta == 0 ? 0 : g.beta * c, want = g.alpha * e.sum + addend;
  const double scale = std::fabs(g.alpha) * e.magnitude + std::fabs(addend);
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  const double u = unit_roundoff(g.type == DType::f64 ? DType::f64 : DType::f32);
  const bool narrow = g.out_type == DType::f16 || g.out_type == DType::bf16;
  const double root_k = std::sqrt(double(std::max<int64_t>(g.k, 1)));
  const double rounding = product_error(precision) * std::fabs(g.alpha) * std::min(1.0, 16 / root_k);
  const double bound = 2 * u * (root_k + 3) * scale + rounding * e.magnitude +
                       (narrow ? unit_roundoff(g.out_type) * std::fabs(want) : 0);
  return std::fabs(got - want) <= bound;
}

// Integer results must be equal modulo the range of the result.
bool exact(const GemmCase& g, const Block& a, const Block& b, const Block& c, const Block& out, int64_t t,
           int64_t i, int64_t j) {
  uint64_t sum = 0;
  for (int64_t k = 0; k < g.k; ++k) sum += uint64_t(a.integer(t, i, k)) * uint64_t(b.integer(t, k, j));
  const uint64_t want =
      uint64_t(int64_t(g.alpha)) * sum + uint64_t(int64_t(g.beta)) * uint64_t(c.integer(t, i, j));
  return same_in(g.out_type, want, uint64_t(out.integer(t, i, j)));
}

void check_gemm(const Kernel& kernel, const GemmCase& g, int threads, std::mt19937& random) {
  Block a(g.type, g.batch, g.m, g.k, g.a), b(g.type, g.batch, g.k, g.n, g.b);
  Block c(g.out_type, g.batch, g.m, g.n, g.out), out(g.out_type, g.batch, g.m, g.n, g.out);
  a.randomize(random), b.randomize(random), c.randomize(random);
  if (g.extremes) set_extremes(a, b, g);
  if (g.in_place)
    for (int64_t t = 0; t < g.batch; ++t)
      for (int64_t i = 0; i < g.m; ++i)
        for (int64_t j = 0; j < g.n; ++j)
          std::memcpy(out.element(t, i, j), c.element(t, i, j), size_t(element_size(g.out_type)));
  GemmProblem p;
  p.type = g.type, p.out_type = g.out_type, p.batch = g.batch, p.m = g.m, p.n = g.n, p.k = g.k;
  p.alpha = g.alpha, p.beta = g.beta;
  p.a = a.read_only(), p.b = b.read_only(), p.out = out.view();
  if (g.beta != 0) p.c = (g.in_place ? out : c).read_only();
  if (g.type == DType::f32) p.precision = kernel.precision;
  if (kernel.rejects && kernel.rejects(p)) return;
  const std::string what = text({g.batch, g.m, g.n, g.k}) + " a" + text(g.a) + " b" + text(g.b) + " out" +
                           text(g.out) + " alpha " + std::to_string(int(g.alpha)) + " beta " +
                           std::to_string(int(g.beta)) + (g.in_place ? " in place" : "") + " threads " +
                           std::to_string(threads);
  ThreadContext context(threads);
  try {
    kernel.gemm(p, context);
  } catch (const std::exception& e) {
    return report(kernel, g.type, what + " threw " + e.what());
  }
  Reference reference(g, a, b);
  for (int64_t t = 0; t < g.batch; ++t) {
    if (!is_integer(g.type)) reference.take_batch(t, g.m, g.n);
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j)
        if (!(is_integer(g.type)
                  ? exact(g, a, b, c, out, t, i, j)
                  : right(g, p.precision, reference.at(i, j), c.number(t, i, j), out.number(t, i, j))))
          return report(kernel, g.type, what + " wrong at " + text({t, i, j}));
  }
  if (!out.gaps_untouched()) report(kernel, g.type, what + " wrote between the rows of out");
}

std::vector<DType> result_types(DType type) {
  if (is_integer(type)) return {result_type(type)};
  if (type == DType::f16 || type == DType::bf16) return {type, DType::f32};
  return {type};
}

// A CUDA kernel gets one of them each time, in turns: tests/simt checks its results in all of them.
std::vector<DType> some_result_types(const Kernel& kernel, DType type) {
  static size_t turn = 0;
  const std::vector<DType> all = result_types(type);
  if (kernel.device == Device::cpu) return all;
  return {all[turn++ % all.size()]};
}

// Draws layouts, scalars and batch at random. The bits of `layout` say which of a, b and out are
// column-major.
GemmCase draw_case(DType type, DType out_type, const int64_t (&size)[3], int layout, bool aligned,
                   std::mt19937& random) {
  const auto draw = [&](bool column_major) {
    if (aligned) return Layout{column_major, int64_t(random() % 2 * 16), 0, random() % 2 == 0, 64};
    return Layout{column_major, int64_t(random() % 4), int64_t(random() % 3), random() % 2 == 0};
  };
  const bool scaled = random() % 2, large = size[0] * size[1] * size[2] > 30000;
  return {.type = type,
          .out_type = out_type,
          .batch = large ? 1 : 1 + int64_t(random() % 3),
          .m = size[0],
          .n = size[1],
          .k = size[2],
          .a = draw(layout & 1),
          .b = draw(layout & 2),
          .out = draw(layout & 4),
          .alpha = scaled ? -3.0 : 1.0,
          .beta = scaled ? 2.0 : 0.0,
          .in_place = scaled && random() % 2};
}

void check_gemm_sizes(const Kernel& kernel, DType type, std::mt19937& random) {
  constexpr int64_t sizes[][3] = {{1, 1, 1},    {2, 3, 5},     {7, 17, 9},   {1, 50, 33},
                                  {40, 1, 35},  {16, 64, 48},  {15, 49, 31}, {33, 65, 70},
                                  {3, 5, 1030}, {10, 21, 600}, {5, 7, 0}};
  with_some_layouts(kernel, sizes, 8, [&](const int64_t(&size)[3], int layout) {
    for (const DType out_type : some_result_types(kernel, type))
      check_gemm(kernel, draw_case(type, out_type, size, layout, false, random), random() % 2 ? 3 : 1,
                 random);
  });
}

// On a CPU only: other units have rules of their own for NaN and infinity.
void check_gemm_extremes(const Kernel& kernel, DType type, std::mt19937& random) {
  if (kernel.device != Device::cpu) return;
  constexpr int64_t size[] = {11, 15, 21};
  for (int layout = 0; layout < 8; layout += 3) {
    GemmCase g = draw_case(type, result_types(type)[0], size, layout, false, random);
    g.batch = 1, g.extremes = true;
    check_gemm(kernel, g, 1, random);
  }
}

// Sizes that are cut into several blocks, with K split over threads or blocks.
void check_gemm_blocks(const Kernel& kernel, DType type, std::mt19937& random) {
  if (kernel.device == Device::cpu) {
    constexpr int64_t sizes[][3] = {{130, 100, 80}, {4, 8, 9001}, {260, 20, 300}, {1, 700, 65}};
    if (kernel.level < 5) return;
    for (const auto& size : sizes)
      check_gemm(kernel, draw_case(type, result_types(type)[0], size, 2, false, random), 3, random);
    return;
  }
  // Long enough along k that a ring of stages is used more than once, and that blocks share it. Then more
  // block tiles of up to 128 x 256 than multiprocessors, whole and partial tiles, with and without 16-byte
  // accesses: tests/simt runs each kernel with more of them, and this test, which is about arithmetic, with
  // one.
  static size_t turn = 0;
  constexpr int64_t tiles[][3] = {{144, 272, 96}, {257, 131, 67}, {250, 500, 44}};
  const auto& several = tiles[(turn++ + size_t(type)) % 3];
  const int64_t sizes[][3] = {{4, 8, 4501}, {several[0], several[1], several[2]}};
  with_some_layouts(kernel, sizes, 4, [&](const int64_t(&size)[3], int layout) {
    for (const DType out_type : some_result_types(kernel, type)) {
      const bool aligned = random() % 4 != 0, column_major = random() % 8 == 0;
      check_gemm(kernel, draw_case(type, out_type, size, layout + 4 * column_major, aligned, random), 1,
                 random);
    }
  });
}

}  // namespace

void check_gemm_row(const Kernel& kernel, DType type, std::mt19937& random) {
  check_gemm_sizes(kernel, type, random);
  check_gemm_extremes(kernel, type, random);
  check_gemm_blocks(kernel, type, random);
}

}  // namespace fastgemm::test
