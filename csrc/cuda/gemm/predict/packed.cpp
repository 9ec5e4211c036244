#include "cuda/gemm/predict/packed.h"

#include <algorithm>

#include "core/packed_weight.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::predict {
namespace {

double codes_of(const GemmProblem& p) { return double(p.n) * double(p.k); }
double cycles_a_second(const Gpu& gpu) { return gpu.clock * gpu.multiprocessors; }

struct Rates {
  double of_bandwidth;   // the share of the bandwidth of memory at which codes are read
  double codes_a_cycle;  // that a multiprocessor converts
  double flops_a_cycle;  // of products that do not hide behind both
};

// Few rows of x: the time to read the codes or to convert them, whichever is longer, and that of the products
// of further rows.
double seconds_of_stream(const GemmProblem& p, const Gpu& gpu, const Rates& rates) {
  constexpr double kLaunch = 3e-6;
  const double codes = codes_of(p), bytes = codes * bits_of(p.packed.code) / 8;
  const double read = std::max(bytes / (rates.of_bandwidth * gpu.bandwidth),
                               codes / (rates.codes_a_cycle * cycles_a_second(gpu)));
  const double rows = double(std::max<int64_t>(p.m - 16, 0));
  return kLaunch + read + 2 * codes * rows / (rates.flops_a_cycle * cycles_a_second(gpu));
}

}  // namespace

// Scales of groups below 128 columns are applied to sums more often.
double packed_wgmma_seconds(const GemmProblem& p, const Gpu& gpu) {
  const bool often = !p.packed.by_rows(p.k) && p.packed.group_k < packed::kColumns;
  return seconds_of_stream(p, gpu, {0.55, often ? 9.0 : 18.0, 3050});
}

double packed_mma_seconds(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kOfPeak = 0.16;
  return seconds_of_stream(p, gpu, {0.37, 8.6, kOfPeak * 2 * multiply_adds(gpu, Unit::tensor, p.type)});
}

// Stages of 64 columns, shared by all multiprocessors.
double packed_tiles_seconds(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kLaunch = 6e-6, kCycles128 = 1190, kCycles256 = 1345, kScaled = 1.2;
  const int64_t columns = plans::packed_columns(p.m, p.n, gpu.multiprocessors);
  const double tiles = double(plans::ceil_div(p.m, columns) * plans::ceil_div(p.n, plans::kSpecializedM));
  const double stages = tiles * double(plans::specialized_stages(p.k, 2)) / gpu.multiprocessors;
  const double each = (columns == 128 ? kCycles128 : kCycles256) * (p.packed.by_rows(p.k) ? 1.0 : kScaled);
  return kLaunch + std::max(stages, double(plans::kChunk)) * each / gpu.clock;
}

}  // namespace fastgemm::predict
