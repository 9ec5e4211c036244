// Every instruction of cuda/device that moves or multiplies matrices, as the simulator has it: against plain
// products of matrices in the layouts that it claims. tests/cuda/matrix_layouts.cu compares the same cases
// with a GPU.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "matrix_check.h"
#include "simt/session.h"
#include "simt/trace.h"

namespace fastgemm::test {
namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("not so: %s\n", what.c_str());
}

void check(const MatrixCase& c, std::mt19937& random) {
  for (const Fill fill : {Fill::exact, Fill::random}) {
    const MatrixData d = make_data(c, fill, random);
    expect(error_of(c, d, fill, simulate(c, d, {}).data()) <= 1,
           c.name + (fill == Fill::exact ? ", exact" : ""));
  }
  if (!simt::trace::instrumented()) return;
  // Two registers of a fragment in each other's place must show.
  const MatrixData d = make_data(c, Fill::random, random);
  for (const Swap::Where where : {Swap::a, Swap::b, Swap::d})
    for (int i = 0; i < c.swaps[where]; ++i)
      for (int j = 0; j < i; ++j)
        expect(!(error_of(c, d, Fill::random, simulate(c, d, {where, i, j}).data()) <= 1),
               c.name + " with registers " + std::to_string(i) + " and " + std::to_string(j) +
                   " swapped is wrong");
}

void check_pipeline(std::mt19937& random) {
  MatrixCase shape{"pipelined product", Number::bf16, 128, 192, 320};
  shape.accumulates = false;
  const MatrixData d = make_data(shape, Fill::exact, random);
  const auto error = [&](Mistake mistake) {
    return error_of(shape, d, Fill::exact, simulate_pipeline(shape, d, mistake).data());
  };
  expect(error(Mistake::none) == 0, "the pipelined product is exact");

  if (!simt::trace::instrumented()) return;
  const auto reported = [&](Mistake mistake, const char* words) {
    try {
      error(mistake);
    } catch (const std::runtime_error& e) {
      return expect(std::strstr(e.what(), words), std::string(e.what()) + " (no \"" + words + "\")");
    }
    expect(false, std::string("an error with ") + words);
  };
  reported(Mistake::no_barrier_wait, "in flight");
  reported(Mistake::early_refill, "in flight");
  reported(Mistake::no_wgmma_wait, "in flight");
  reported(Mistake::no_wgmma_fence, "after the last wgmma_fence");

  // Where reports do not stop the kernel, its result is wrong, or it comes to a halt.
  const auto shows = [&](Mistake mistake) {
    try {
      return error(mistake) > 0;
    } catch (const std::runtime_error&) {
      return true;
    }
  };
  simt::session().options.raise_problems = false;
  for (const Mistake mistake : {Mistake::no_barrier_wait, Mistake::no_wgmma_wait, Mistake::wrong_swizzle})
    expect(shows(mistake), "mistake " + std::to_string(int(mistake)) + " shows");
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
