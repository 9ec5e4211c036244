#include "cuda/gemm/predict/predict.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cuda/gemm/predict/facts.h"

namespace fastgemm::predict {
namespace {

// Which source path of a kernel runs: the one with wgmma and TMA, or the one for all GPUs.
enum class Path : uint8_t { hopper, portable, both };

struct Fitted {
  Row row;
  Path path;
  DTypeSet types;
  Costs costs;
};

constexpr DTypeSet f64 = dtypes(DType::f64), f32 = dtypes(DType::f32), half = dtypes(DType::f16, DType::bf16),
                   i8 = dtypes(DType::i8), i32 = dtypes(DType::i32);
constexpr Fitted kFitted[] = {
#define FASTGEMM_COSTS(row, path, types, ...) {Row::row, Path::path, types, {__VA_ARGS__}},
#include "cuda/gemm/predict/costs.def"
};

// A type that was not measured uses the constants of this type, whose kernels do the same work. The
// differences are in the counts.
constexpr DType measured_as(Row row, DType type) {
  if (row == Row::crt) return type == DType::i64 ? DType::f64 : type;  // both have two words for each element
  const bool by_tensor_cores =
      row == Row::wgmma_specialized || row == Row::mma_sync || row == Row::small_tile;
  if (by_tensor_cores && is_byte(type)) return DType::i8;
  return is_integer(type) && type != DType::i8 ? DType::i32 : type;
}

// A row that was not measured uses the constants of this row, which does the same work. The differences are
// in the counts.
constexpr Row measured_as(Row row) { return row == Row::int16x4 ? Row::int8x10 : row; }

// The constants that ship. A row with one source for every GPU may have constants for one path only.
std::optional<Costs> shipped_costs(Row row, DType type, bool wgmma) {
  const Path path = wgmma ? Path::hopper : Path::portable;
  std::optional<Costs> other;
  for (const Fitted& f : kFitted) {
    if (f.row != measured_as(row) || !contains(f.types, measured_as(row, type))) continue;
    if (f.path == path || f.path == Path::both) return f.costs;
    other = f.costs;
  }
  return other;
}

// Groups count as a batch of groups of the same size, without those that must be empty.
GemmProblem of_equal_groups(GemmProblem p) {
  if (!p.groups.are_given()) return p;
  int64_t& size = p.groups.by == GroupedBy::k ? p.k : p.m;
  if (p.groups.by != GroupedBy::k) p.batch = std::min(p.batch, p.m);
  size = std::max<int64_t>((size + p.batch - 1) / std::max<int64_t>(p.batch, 1), 1);
  p.groups = {};
  return p;
}

// The series of a GPU. float32 precisions without a series of their own use that of IEEE products, which are
// the library's slowest.
std::shared_ptr<const Series> series_of(uint64_t gpu, const GemmProblem& p) {
  const auto found = find_series({gpu, std::nullopt, p.type, p.precision});
  return found ? found : find_series({gpu, std::nullopt, p.type, Precision::ieee});
}

// The factor on the library's time for a product with a c, which no measured point has. Adding c makes
// fastgemm's kernels slower, the more the shorter k is, while the library hides it in its epilogue.
double share_with_c(const GemmProblem& p) {
  if (p.beta == 0 || p.batch * p.m * p.n < 1 << 20) return 1;
  return std::exp2(-std::min(0.5, std::log2(1 + 800.0 / double(std::max<int64_t>(p.k, 1)))));
}

double limit_seconds(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const bool tensor = p.type != DType::i32 && (p.type != DType::f32 || p.precision != Precision::ieee);
  const double unit = rate(gpu, tensor ? Unit::tensor : Unit::fma, p.type);
  const double most = std::max(unit, rate(gpu, Unit::fma, p.type)) * gpu.multiprocessors * gpu.clock;
  const double bytes = f.a.bytes + f.b.bytes + f.result_bytes + f.c_bytes;
  return std::max(p.flops() / 2 / most, bytes / gpu.bandwidth);
}

}  // namespace

std::optional<Costs> costs_of(Row row, DType type, const Gpu& gpu) {
  const auto tuned = find_series({gpu.number, row, type});
  return tuned ? tuned->costs : shipped_costs(row, type, gpu.wgmma);
}

double time_before_limit(const Counts& counts, const Costs& costs) {
  using Values = std::array<double, kCounts>;
  const Values how_often = std::bit_cast<Values>(counts), each = std::bit_cast<Values>(costs);
  double sum = 0;
  for (int i = 0; i < kCounts - 1; ++i) sum += how_often[i] * each[i];
  return sum;
}
double time_of(const Counts& counts, const Costs& costs, double correction) {
  return std::max(time_before_limit(counts, costs) * std::exp(correction), counts.least * costs.least);
}

double seconds(Row row, Counter count, const GemmProblem& given, const Gpu& gpu) {
  // wgmma_specialized counts the tiles of a triangle. For other kernels, a triangle counts as a product of
  // half the columns. It takes longer than that (kOfTriangle), because tiles on the diagonal are computed as
  // a whole, and because there are fewer tiles.
  constexpr double kOfTriangle = 1.15;
  const bool halved = given.triangle != 0 && row != Row::wgmma_specialized;
  GemmProblem p = of_equal_groups(given);
  if (halved) p.triangle = 0, p.n = std::max<int64_t>(p.n / 2, 1);
  const auto tuned = find_series({gpu.number, row, p.type});
  const std::optional<Costs> costs = tuned ? tuned->costs : shipped_costs(row, p.type, gpu.wgmma);
  if (!costs) return std::numeric_limits<double>::infinity();
  const Counts counts = count(p, gpu);
  const double correction = tuned || !gpu.wgmma ? 0 : row_correction(row, p);
  // A fit on one GPU cannot tell whether the multiply-adds limit a time, or whether the time only grows with
  // their number. So on a GPU with a lower peak, what stands for them must take as long as they do at that
  // peak.
  const double multiply = counts.steps * costs->steps + counts.busiest * costs->busiest +
                          counts.tiles * costs->tiles + counts.slower * costs->slower;
  const double missing = tuned ? 0 : std::max(counts.busiest - multiply, 0.0);
  return (halved ? kOfTriangle : 1.0) * (time_of(counts, *costs, correction) + missing);
}

Knowledge knowledge_of(const Gpu& gpu) {
  if (has_series(gpu.number)) return Knowledge::tuned;
  // Kernels and library were measured on an H200. Other GPUs of its compute capability differ only in what
  // struct Gpu says.
  return gpu.wgmma ? Knowledge::measured : Knowledge::predicted;
}

double library_seconds(const GemmProblem& p, const Gpu& gpu) {
  const auto tuned = gpu.number ? series_of(gpu.number, p) : nullptr;
  // Types that were not tuned on this GPU have what ships.
  const auto series = tuned ? tuned : gpu.wgmma ? series_of(kShipped, p) : nullptr;
  if (!series) return limit_seconds(p, gpu);
  const double correction =
      !tuned && is_half(p.type) ? half_library_correction(p) : series->points.correction(place_of(p));
  return time_of(count_library(p, gpu), series->costs, correction) * share_with_c(p);
}

// In 16 bits an own kernel is taken instead of the library up to kCall behind it. A call of the library takes
// the host some microseconds longer, which short products show if they are not in a CUDA graph. In graphs
// choices are no worse: chosen / best is 1.014 with it and 1.015 without (check_choices.py --held-out, an
// H200).
double library_to_beat(const GemmProblem& p, const Gpu& gpu) {
  constexpr double kCall = 0.3e-6;
  return library_seconds(p, gpu) + (is_half(p.type) ? kCall : 0);
}

}  // namespace fastgemm::predict
