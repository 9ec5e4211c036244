// Tests how narrow products are divided among threads and blocks, at sizes too large to run here.
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>

#include "support.h"

// Included after the standard library's headers, because it defines nvcc's __noinline__ as a macro.
#include "cuda/gemm/fast/narrow_plan.cuh"
#include "cuda/gemm/launchers.h"
#include "cuda/gemm/rules.h"
#include "simt/session.h"

namespace fastgemm::simt {
namespace {

int failures = 0;
void expect(bool right, const std::string& what) {
  if (!right) ++failures, std::printf("wrong: %s\n", what.c_str());
}

constexpr int64_t kMostBlocksZ = 65535;

// `batch` products (wide, k) times (k, narrow), both operands contiguous along k.
GemmProblem problem_of(int64_t wide, int64_t narrow, int64_t k, int64_t batch) {
  GemmProblem p;
  p.m = wide, p.n = narrow, p.k = k, p.batch = batch;
  p.a = {nullptr, k, 1, wide * k}, p.b = {nullptr, 1, k, narrow * k};
  p.out = {nullptr, narrow, 1, wide * narrow};
  return p;
}

template <class Thread>
void check_plan(const NarrowProblem<float>& p, const std::string& what) {
  const NarrowPlan plan = plans::plan_narrow(Thread::kShape, p.shape(), multiprocessors());
  const int64_t k = p.wide.k;
  expect(int64_t{plan.splits} * plan.part >= k, what + ": the blocks cover k");
  expect(int64_t{plan.splits - 1} * plan.part < std::max<int64_t>(k, 1), what + ": no block is idle");
  expect(p.batch * int64_t{plan.splits} <= kMostBlocksZ, what + ": gridDim.z");
  const int64_t step = Thread::kPerLoadK * Thread::kUnroll, threads_k = kNarrowThreads / plan.threads_rows;
  const int64_t chain = ceil_div(std::min<int64_t>(plan.part, k), threads_k);
  const int64_t longest = std::max<int64_t>(512, ceil_div(k, kNarrowThreads));
  expect(threads_k * plan.threads_rows == kNarrowThreads, what + ": every thread has work");
  expect(chain <= longest + step, what + ": values that a thread adds one after another");
}

void every_plan() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto size = [&](int bits) { return int64_t(1 + random() % (1u << (random() % unsigned(bits) + 1))); };
  for (int i = 0; i < 2000; ++i) {
    session().options.multiprocessors = random() % 2 ? 132 : 3;
    const int64_t wide = size(14), narrow = size(4), k = size(31), batch = size(16);
    const GemmProblem problem = problem_of(wide, narrow, k, batch);
    const NarrowProblem<float> p(gemm_of<float>(problem), int(batch));
    const std::string what = std::to_string(batch) + " x " + std::to_string(wide) + " x " +
                             std::to_string(narrow) + " x " + std::to_string(k);
    if (beyond_narrow_parts(problem)) continue;
    check_plan<NarrowThread<float, 1, Reads::along_k>>(p, what);
    check_plan<NarrowThread<float, 1, Reads::elements>>(p, what);
    check_plan<NarrowThread<float, 4, Reads::along_rows>>(p, what);
    check_plan<NarrowThread<float, 8, Reads::elements>>(p, what);
  }
}

// The name of the kernel that runs. Its first access, to a null pointer, ends the simulation.
std::string ran(int64_t k, int64_t batch) {
  test::ThreadContext context(1);
  try {
    gemm_narrow(problem_of(1, 1, k, batch), context);
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return "nothing";
}

void more_blocks_than_a_grid_has() {
  const int64_t k = kMostNarrowPart + 8;
  const std::string fault = ran(k, kMostBlocksZ / 2);
  expect(fault.find("'narrow'") != std::string::npos, fault);
  expect(!beyond_narrow_parts(problem_of(1, 1, k, kMostBlocksZ / 2)), "as many blocks as the grid has");
  expect(beyond_narrow_parts(problem_of(1, 1, k, kMostBlocksZ / 2 + 1)), "more blocks than the grid has");
}

}  // namespace
}  // namespace fastgemm::simt

int main() {
  fastgemm::simt::every_plan();
  fastgemm::simt::more_blocks_than_a_grid_has();
  std::printf("%d failures\n", fastgemm::simt::failures);
  return fastgemm::simt::failures ? 1 : 0;
}
