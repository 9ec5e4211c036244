// Every instruction of cuda/device that moves or multiplies matrices, as the simulator has it: against plain
// products of matrices in the layouts that it claims. tests/cuda/matrix_layouts.cu compares the same cases
// with a GPU.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "matrix_check.h"
#include "simt/memory.h"
#include "simt/session.h"

namespace fastgemm::test {
namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("not so: %s\n", what.c_str());
}

Bytes run(const MatrixCase& c, const MatrixData& d, Swap swap) {
  Bytes result = d.c;
  simt::memory::remove_all_global();
  simt::memory::add_global(d.a.data(), d.a.size(), "a", false, true);
  simt::memory::add_global(d.b.data(), d.b.size(), "b", false, true);
  simt::memory::add_global(result.data(), result.size(), "c", true, true);
  c.run(d.a.data(), d.b.data(), result.data(), swap);
  return result;
}

void check(const MatrixCase& c, std::mt19937& random) {
  for (const Fill fill : {Fill::exact, Fill::random}) {
    const MatrixData d = make_data(c, fill, random);
    expect(error_of(c, d, fill, run(c, d, {}).data()) <= 1, c.name + (fill == Fill::exact ? ", exact" : ""));
  }
  // Two registers of a fragment in each other's place must show.
  const MatrixData d = make_data(c, Fill::random, random);
  for (const Swap::Where where : {Swap::a, Swap::b, Swap::d})
    for (int i = 0; i < c.swaps[where]; ++i)
      for (int j = 0; j < i; ++j)
        expect(!(error_of(c, d, Fill::random, run(c, d, {where, i, j}).data()) <= 1),
               c.name + " with registers " + std::to_string(i) + " and " + std::to_string(j) +
                   " swapped is wrong");
}

// c (m, n) = a (m, k) * b (n, k)^T by the pipelined kernel with a mistake; integers, so that the result is
// exact.
struct Pipeline {
  static constexpr int kM = 128, kN = 192, kK = 320;
  Bytes a{kM * kK * 2}, b{kN * kK * 2}, c{kM * kN * 4};
  std::vector<float> expected;

  explicit Pipeline(std::mt19937& random) {
    MatrixCase shape{"", Number::bf16, kM, kN, kK};
    shape.accumulates = false;
    const MatrixData d = make_data(shape, Fill::exact, random);
    a = d.a, b = d.b;
    expected.assign(d.expected.begin(), d.expected.end());
  }

  // Elements that are wrong.
  int run(Mistake mistake) {
    simt::memory::remove_all_global();
    simt::memory::add_global(a.data(), a.size(), "a", false, true);
    simt::memory::add_global(b.data(), b.size(), "b", false, true);
    simt::memory::add_global(c.data(), c.size(), "c", true, false);
    simt::pipelined_product(a.data(), b.data(), reinterpret_cast<float*>(c.data()), kM, kN, kK, mistake);
    int wrong = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      float x;
      std::memcpy(&x, c.data() + 4 * i, 4);
      wrong += !(x == expected[i]);
    }
    return wrong;
  }
};

void check_pipeline(std::mt19937& random) {
  Pipeline p(random);
  expect(p.run(Mistake::none) == 0, "the pipelined product is exact");

  const auto reported = [&](Mistake mistake, const char* words) {
    try {
      p.run(mistake);
    } catch (const std::runtime_error& e) {
      return expect(std::strstr(e.what(), words), std::string(e.what()) + " (no \"" + words + "\")");
    }
    expect(false, std::string("an error with ") + words);
  };
  reported(Mistake::no_barrier_wait, "in flight");
  reported(Mistake::early_refill, "in flight");
  reported(Mistake::no_wgmma_wait, "in flight");
  reported(Mistake::no_wgmma_fence, "after the last wgmma_fence");

  // Where nothing is reported the result is wrong.
  simt::session().options.raise_problems = false;
  for (const Mistake mistake : {Mistake::no_barrier_wait, Mistake::no_wgmma_wait, Mistake::wrong_swizzle}) {
    int wrong = 0;
    try {
      wrong = p.run(mistake);
    } catch (const std::runtime_error&) {
      wrong = 1;
    }
    expect(wrong > 0, "mistake " + std::to_string(int(mistake)) + " shows in the result");
  }
  simt::session().options.raise_problems = true;
}

}  // namespace

int run_all() {
  std::mt19937 random(std::random_device{}());
  for (const MatrixCase& c : simt::matrix_cases()) check(c, random);
  check_pipeline(random);
  std::printf("%d failures\n", failures);
  return failures ? 1 : 0;
}

}  // namespace fastgemm::test

int main() { return fastgemm::test::run_all(); }
