#include "cpu/peak/peak.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu/per_isa.h"

namespace fastgemm {

#define FASTGEMM_DECLARE_BURSTS(isa) \
  namespace isa {                    \
  double burst_f64(int64_t rounds);  \
  double burst_f32(int64_t rounds);  \
  double burst_i32(int64_t rounds);  \
  }
FASTGEMM_DECLARE_BURSTS(baseline)
#if defined(__x86_64__)
FASTGEMM_DECLARE_BURSTS(avx2)
FASTGEMM_DECLARE_BURSTS(avx512)
#endif
#undef FASTGEMM_DECLARE_BURSTS

namespace {

using Burst = double (*)(int64_t);

Burst burst_for(DType t) {
  const int which = t == DType::f64 ? 0 : (t == DType::f32 || t == DType::f16) ? 1 : t == DType::i32 ? 2 : -1;
  if (which < 0) return nullptr;
  constexpr Burst bursts[][3] = {
      {FASTGEMM_PER_ISA(burst_f64)}, {FASTGEMM_PER_ISA(burst_f32)}, {FASTGEMM_PER_ISA(burst_i32)}};
  return bursts[which][static_cast<int>(cpu_features().isa())];
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best rate of several short runs, because the peak is what the machine can do undisturbed.
double best_rate(Burst burst, double seconds) {
  constexpr int64_t kRounds = 50'000;  // about 0.2 ms
  double best = 0;
  for (const double end = now() + seconds; now() < end;) {
    const double start = now();
    const double operations = burst(kRounds);
    best = std::max(best, operations / (now() - start));
  }
  return best;
}

}  // namespace

double measure_peak(DType type, int threads, double seconds) {
  const Burst burst = burst_for(type);
  if (!burst) return 0;
  std::vector<double> rates(size_t(std::max(threads, 1)));
  try {
    std::vector<std::jthread> pool;  // joined at the end of the block, even if some did not start
    pool.reserve(rates.size());
    for (double& rate : rates)
      pool.emplace_back([&rate, burst, seconds] { rate = best_rate(burst, seconds); });
  } catch (const std::system_error& error) {
    throw std::runtime_error("cannot start " + std::to_string(rates.size()) +
                             " threads to measure the peak of multiply-adds: " + error.what());
  }
  double total = 0;
  for (const double rate : rates) total += rate;
  return total;
}

}  // namespace fastgemm
