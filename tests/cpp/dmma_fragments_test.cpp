// The fragments of the fp64 rungs hold what their instructions want: the kernels are right, and with any two
// registers of a fragment in each other's place they are wrong, whichever way the operands run.
#include <cstdio>
#include <string>
#include <utility>

#include "dmma_exchange.h"
#include "simt/rows.h"
#include "support.h"

namespace fastgemm::test {
namespace {

// Whether a kernel computes a product of 24 x 40 x 20; `layout` says by its bits which operand is
// column-major.
bool is_right(const Kernel& kernel, int layout, std::mt19937& random) {
  constexpr int64_t kM = 24, kN = 40, kK = 20;
  Block a(DType::f64, 1, kM, kK, {bool(layout & 1)}), b(DType::f64, 1, kK, kN, {bool(layout & 2)});
  const Block c(DType::f64, 1, kM, kN, {});
  a.randomize(random), b.randomize(random);
  GemmProblem p;
  p.type = p.out_type = DType::f64, p.m = kM, p.n = kN, p.k = kK;
  p.a = a.read_only(), p.b = b.read_only(), p.out = c.view();
  ThreadContext context(1);
  kernel.gemm(p, context);
  for (int64_t i = 0; i < kM; ++i)
    for (int64_t j = 0; j < kN; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const double x = a.number(0, i, k) * b.number(0, k, j);
        sum += x, magnitude += std::fabs(x);
      }
      if (!(std::fabs(c.number(0, i, j) - sum) <= 1e-14 * magnitude)) return false;
    }
  return true;
}

int failures = 0, checks = 0;

void expect(const Kernel& kernel, bool right, const std::string& what, std::mt19937& random) {
  for (int layout = 0; layout < 4; ++layout, ++checks) {
    if (is_right(kernel, layout, random) == right) continue;
    ++failures;
    std::printf("%s, layout %d, %s: %s\n", std::string(kernel.name).c_str(), layout, what.c_str(),
                right ? "wrong" : "not noticed");
  }
}

// `registers` of one fragment.
template <int count>
void expect_exchanges_noticed(const Kernel& kernel, int (&registers)[count], const char* fragment,
                              std::mt19937& random) {
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < i; ++j) {
      std::swap(registers[i], registers[j]);
      expect(kernel, false, fragment + (" " + std::to_string(j)) + " and " + std::to_string(i), random);
      std::swap(registers[i], registers[j]);
    }
}

}  // namespace

int run_all() {
  std::mt19937 random(std::random_device{}());
  for (const Kernel& kernel : simt::rows()) {
    if (kernel.op != Op::gemm || !kernel.name.starts_with("dmma")) continue;
    expect(kernel, true, "as it is", random);
    expect_exchanges_noticed(kernel, exchange.a, "a", random);
    expect_exchanges_noticed(kernel, exchange.b, "b", random);
    expect_exchanges_noticed(kernel, exchange.c, "c", random);
  }
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures || checks != 2 * (1 + 6 + 1 + 6) * 4 ? 1 : 0;
}

}  // namespace fastgemm::test

int main() { return fastgemm::test::run_all(); }
