// Tests the plans of kernels (cuda/gemm/predict): a short search must find the same plan as a search of all
// candidates. Also measures the time of the predictions for a new signature.
#include "cuda/gemm/predict/plans.h"

#include <chrono>
#include <cstdio>
#include <random>
#include <string>

#include "core/table.h"
#include "cuda/gemm/predict/fused_plan.h"
#include "cuda/gemm/predict/predict.h"

namespace fastgemm::plans {
namespace {

int failures = 0;
void expect(bool right, const std::string& what) {
  if (!right && ++failures < 20) std::printf("wrong: %s\n", what.c_str());
}

int every_split(int64_t tiles, int64_t k, int64_t least, int64_t processors) {
  int best = 1;
  double best_time = double(ceil_div(tiles, processors));
  for (int splits = 2; splits * least <= k && (splits - 1) * tiles < 4 * processors; ++splits) {
    const int64_t blocks = tiles * splits;
    const double alone = blocks <= processors ? 1.15 : 1.0;
    const double time =
        alone * double(ceil_div(blocks, processors)) / splits + 0.25 * double(blocks) / double(k);
    if (time < best_time) best = splits, best_time = time;
  }
  return best;
}

Splits every_fused_split(int64_t tiles, int64_t steps, int64_t slots, double stage, double fill) {
  const auto time = [&](int64_t splits) {
    return double(ceil_div(tiles * splits, slots)) *
               (stage * double(ceil_div(steps, splits)) + fill + (splits > 1)) +
           (splits > 1 ? fill : 0);
  };
  Splits best{1, time(1)};
  for (int splits = 2; splits * 2 <= steps && (splits - 1) * tiles < 8 * slots; ++splits)
    if (time(splits) < best.time) best = {splits, time(splits)};
  return best;
}

void short_searches() {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  const auto size = [&](int bits) { return int64_t(1 + random() % (uint64_t{1} << (random() % bits + 1))); };
  constexpr int64_t kProcessors[] = {132, 3, 24, 108, 114, 142, 170, 1};
  for (int i = 0; i < 100'000; ++i) {
    const int64_t tiles = size(12), k = size(24), sms = kProcessors[random() % 8];
    const std::string what = std::to_string(tiles) + " tiles, k = " + std::to_string(k) + ", " +
                             std::to_string(sms) + " multiprocessors";
    const int64_t least = int64_t{64} << random() % 2;
    expect(choose_splits(tiles, k, least, sms) == every_split(tiles, k, least, sms), "splits: " + what);
    const int64_t slots = sms * int64_t(1 + random() % 3), steps = ceil_div(k, 32);
    constexpr double kPaces[][2] = {{1, 3}, {0.92, 3.3}, {1, 1.5}};
    const auto& [stage, fill] = kPaces[random() % 3];
    const Splits found = choose_fused_splits(tiles, steps, slots, stage, fill);
    const Splits right = every_fused_split(tiles, steps, slots, stage, fill);
    expect(found.count == right.count && found.time == right.time, "splits of bf16x6_fused: " + what);
  }
}

// Checks that all blocks can run at the same time, that each has a part of k, and that they share tiles as
// planned.
void blocks_of_dmma() {
  std::mt19937_64 random(std::random_device{}());
  const auto size = [&](int bits) { return int64_t(1 + random() % (uint64_t{1} << (random() % bits + 1))); };
  constexpr int kProcessors[] = {132, 3, 24, 114, 142, 1};
  for (int i = 0; i < 20'000; ++i) {
    const int64_t batch = size(4), m = size(12), n = size(12), k = size(20), sms = kProcessors[random() % 6];
    const std::string what = std::to_string(batch) + " x " + std::to_string(m) + " x " + std::to_string(n) +
                             " x " + std::to_string(k) + ", " + std::to_string(sms) + " multiprocessors";
    const DmmaPlan plan = plan_dmma(batch, m, n, k, sms);
    const int64_t steps = ceil_div(k, kDmmaDepth),
                  tiles = batch * ceil_div(m, kDmmaM) * ceil_div(n, plan.columns);
    const bool shares = plan_stream_k(tiles, steps, plan.blocks, plan.sharing()).whole_tiles < tiles;
    expect(plan.blocks <= sms && plan.blocks <= tiles * steps, "blocks of dmma: " + what);
    expect(shares == plan.shares && (shares || plan.blocks <= tiles), "shares of dmma: " + what);
  }
}

GemmProblem problem_of(DType type, int64_t batch, int64_t m, int64_t n, int64_t k) {
  GemmProblem p;
  p.type = type, p.out_type = type == DType::i8 ? DType::i32 : type;
  p.batch = batch, p.m = m, p.n = n, p.k = k;
  p.a = {nullptr, k, 1, m * k}, p.b = {nullptr, n, 1, k * n}, p.out = {nullptr, n, 1, m * n};
  return p;
}

// Times the computations of a decision: the predictions of the library and of every row for the type. The
// limit allows for sanitizers and busy machines. The measured times are printed.
void time_of_a_decision(double limit_us) {
  const Gpu gpu = nominal_gpu(90, 132);
  constexpr int64_t kSizes[][4] = {{1, 1, 1, 1},          {1, 4096, 4096, 4096}, {1, 64, 64, 1 << 20},
                                   {1000, 100, 100, 100}, {1, 16, 8192, 4096},   {1, 1, 1 << 20, 1 << 10},
                                   {1, 3, 5, 1 << 20},    {1, 512, 512, 65536}};
  for (const DType type : {DType::f64, DType::f32, DType::f16, DType::i8, DType::i32})
    for (const auto& [batch, m, n, k] : kSizes) {
      const GemmProblem p = problem_of(type, batch, m, n, k);
      double own = 1e9, library = 1e9, sum = 0;
      const auto microseconds = [&](auto&& work) {
        constexpr int kTimes = 50;
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kTimes; ++i) work();
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
               kTimes;
      };
      for (int i = 0; i < 20; ++i) {
        own = std::min(own, microseconds([&] {
                         for (const Kernel& row : cuda_gemm_kernels())
                           if (row.predict && row.role == Role::rung && row.level < 7 &&
                               contains(row.dtypes, type) && row.takes(p.packed))
                             sum += row.predict(p, gpu);
                       }));
        library = std::min(library, microseconds([&] { sum += predict::library_seconds(p, gpu); }));
      }
      const std::string what = std::to_string(int(type)) + ": " + std::to_string(batch) + " x " +
                               std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
      std::printf("dtype %-40s rows %.2f us, library %.2f us\n", what.c_str(), own, library);
      expect(sum > 0 && own + library < limit_us, what);
    }
}

}  // namespace
}  // namespace fastgemm::plans

int main() {
  fastgemm::plans::short_searches();
  fastgemm::plans::blocks_of_dmma();
  fastgemm::plans::time_of_a_decision(FASTGEMM_DECISION_US);
  std::printf("%d failures\n", fastgemm::plans::failures);
  return fastgemm::plans::failures ? 1 : 0;
}
