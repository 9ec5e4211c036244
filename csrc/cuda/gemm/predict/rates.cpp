// Predicts each kernel of groups of uneven size and of packed weights (core/packed_weight.h) by a few rates,
// which were read off an H200. All groups count as groups of the mean size.
#include "core/packed_weight.h"
#include "cuda/gemm/fp8/scaled_tile.h"
#include "cuda/gemm/fp8/skinny_tile.h"
#include "cuda/gemm/predict/plans.h"
#include "cuda/gemm/predict/predict.h"

namespace fastgemm::predict {
namespace {

double codes_of(const GemmProblem& p) { return double(p.n) * double(p.k); }
double cycles_a_second(const Gpu& gpu) { return gpu.clock * gpu.multiprocessors; }
double peak_of(const Gpu& gpu, DType type) {
  return multiply_adds(gpu, Unit::tensor, type) * cycles_a_second(gpu);
}

// The time of a grouped product in tiles of `rows` rows. `of_peak` and `of_bandwidth` are the shares of the
// peak and of the bandwidth that are reached. Each group is assumed to have one tile that is half empty.
// Weights are read for at most as many groups as there are rows.
double seconds_of_groups(const GemmProblem& p, const Gpu& gpu, int rows, double of_peak,
                         double of_bandwidth) {
  constexpr double kLaunch = 7e-6;
  const double m = double(p.m), n = double(p.n) * (p.gated ? 2 : 1), k = double(p.k);
  const double groups = double(p.batch);
  const bool by_rows = p.groups.by == GroupedBy::m;
  const double all_rows = by_rows ? m + groups * rows / 2 : m;
  const double elements = by_rows ? std::min(groups, m) * n * k + m * (n + k) : groups * m * n + k * (m + n);
  const double peak = peak_of(gpu, p.type);
  return kLaunch + std::max(all_rows * n * k / (of_peak * peak),
                            elements * element_size(p.type) / (of_bandwidth * gpu.bandwidth));
}

// How many codes a multiprocessor converts in a cycle, by the way in which a kernel applies scales. of_units:
// to the sums of a unit's columns or more. paired: scales of the type of x are applied to weights, two at a
// time (nf4: to the sums of half a unit). converted: to weights that are converted to float32.
struct CodesACycle {
  double of_units, paired, converted;

  double of(const GemmProblem& p) const {
    const PackedWeight& w = p.packed;
    if (w.zero != Zero::added && (w.by_rows(p.k) || w.group_k >= packed::kColumns)) return of_units;
    if (w.code == Code::nf4) return paired;
    const bool own = w.scale == (p.type == DType::f16 ? ScaleType::f16 : ScaleType::bf16);
    const bool e8m0 = w.scale == ScaleType::e8m0 && p.type == DType::bf16;
    const bool pairs = w.code == Code::e2m1 ? w.scale == ScaleType::e4m3 || e8m0 : own;
    return pairs && w.group_n == 1 && !w.by_rows(p.k) ? paired : converted;
  }
};

// The time of a product with few rows of x: reading the codes, at a share of the bandwidth, or converting
// them, whichever takes longer, plus the products of the rows beyond 16, which these do not hide.
double seconds_of_stream(const GemmProblem& p, const Gpu& gpu, double of_bandwidth, const CodesACycle& rate,
                         double flops_a_cycle) {
  constexpr double kLaunch = 3e-6;
  const double codes = codes_of(p), bytes = codes * bits_of(p.packed.code) / 8;
  const double read =
      std::max(bytes / (of_bandwidth * gpu.bandwidth), codes / (rate.of(p) * cycles_a_second(gpu)));
  const double rows = double(std::max<int64_t>(p.m - 16, 0));
  return kLaunch + read + 2 * codes * rows / (flops_a_cycle * cycles_a_second(gpu));
}

}  // namespace

double grouped_wgmma_seconds(const GemmProblem& p, const Gpu& gpu) {
  return seconds_of_groups(p, gpu, plans::group_columns(p.m, p.batch), 0.7, 0.6);
}

// Six products of planes, after the planes were cut: 4 bytes read and 6 written.
double grouped_bf16x6_seconds(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kLaunches = 25e-6, kOfPeak = 0.6, kOfBandwidth = 0.8, kProducts = 6, kBytes = 10;
  const double rows = double(p.m) + double(p.batch) * 64, numbers = double(p.batch) * codes_of(p);
  const double peak = peak_of(gpu, DType::bf16);
  return kLaunches + kProducts * rows * codes_of(p) / (kOfPeak * peak) +
         kBytes * numbers / (kOfBandwidth * gpu.bandwidth);
}

double grouped_mma_seconds(const GemmProblem& p, const Gpu& gpu) {
  return seconds_of_groups(p, gpu, 128, gpu.wgmma ? 0.42 : 0.7, 0.4);
}

// The share of the clock at which an H200 multiplies 8-bit numbers.
constexpr double kFp8Clock = 0.89;

// The time until the busiest block ends, or that of memory.
double scaled_wgmma_seconds(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kLaunch = 5.7e-6, kOfBandwidth = 0.56;
  const double cycles =
      plans::plan_scaled(p.m, p.n, p.k, plans::scaled_tiles(p, true), gpu.multiprocessors).cycles;
  const double bytes = double(p.n + p.m) * double(p.k) + double(p.m * p.n) * element_size(p.out_type);
  return kLaunch + std::max(cycles / (kFp8Clock * gpu.clock), bytes / (kOfBandwidth * gpu.bandwidth));
}

double scaled_skinny_seconds(const GemmProblem& given, const Gpu& gpu) {
  constexpr double kLaunch = 3.3e-6;
  const GemmProblem p = given.out.col_stride == 1 || given.n == 1 ? given : given.transposed();
  const bool by_blocks = p.scales_a.block_cols < p.k || p.scales_b.block_rows < p.k;
  return kLaunch +
         plans::plan_skinny(p.m, p.n, p.k, by_blocks, gpu.multiprocessors).cycles / (kFp8Clock * gpu.clock);
}

double packed_wgmma_seconds(const GemmProblem& p, const Gpu& gpu) {
  return seconds_of_stream(p, gpu, 0.65, {18.0, 14.5, 8.8}, 3050);
}
double packed_mma_seconds(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kOfPeak = 0.22;
  const double flops = kOfPeak * 2 * multiply_adds(gpu, Unit::tensor, p.type);
  return seconds_of_stream(p, gpu, 0.58, {15.0, 10.5, 7.5}, flops);
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
