#include "cuda/gemm/predict/predict.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "core/tuning.h"
#include "cuda/gemm/predict/row_points.h"

namespace fastgemm::predict {
namespace {

// Which source path of a kernel runs: the one with wgmma and TMA, or the one for all GPUs.
enum class Path : uint8_t { hopper, portable };

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

using Values = std::array<double, kCounts>;

struct Key {
  uint64_t gpu;
  Row row;
  DType type;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    return size_t(k.gpu * 31 + uint64_t(k.row) * 8 + uint64_t(k.type));
  }
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

// The constants that were fitted at run time.
struct OwnCosts {
  std::shared_mutex mutex;
  std::unordered_map<Key, Costs, KeyHash> costs;
  std::atomic<bool> any = false;
};
OwnCosts& own_costs() {
  static OwnCosts own;
  return own;
}

// The largest share of a Hopper GPU's bandwidth that a row reaches. It is about the same on an H200 and an
// H100, which have 4.9 and 3.35 TB/s. The constants, which were fitted on an H200 alone, attribute some of
// that time to work that does not depend on the bandwidth. Other rows were not seen to be limited by memory.
constexpr double most_of_bandwidth(Row row) {
  switch (row) {
    case Row::small_tile:
    case Row::bf16x6_fused:
      return 0.72;
    case Row::skinny:
    case Row::narrow:
      return 0.77;
    default:
      return 0;
  }
}

double least_of_memory(Row row, const GemmProblem& p, const Gpu& gpu) {
  const double share = gpu.capability == 90 ? most_of_bandwidth(row) : 0;
  if (share == 0) return 0;
  const double m = double(p.m), n = double(p.n), k = double(p.k), batch = double(p.batch);
  const auto members = [batch](const ConstMatrix& x) { return x.batch_stride == 0 ? 1.0 : batch; };
  const double read = (members(p.a) * m + members(p.b) * n) * k * element_size(p.type);
  return (read + batch * m * n * element_size(p.out_type)) / (share * gpu.bandwidth);
}

std::optional<Costs> fitted_here(Row row, DType type, const Gpu& gpu) {
  OwnCosts& own = own_costs();
  if (!own.any) return std::nullopt;
  const std::shared_lock lock(own.mutex);
  const auto it = own.costs.find({gpu.number, row, type});
  return it == own.costs.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace

std::optional<Costs> costs_of(Row row, DType type, const Gpu& gpu) {
  if (const auto own = fitted_here(row, type, gpu)) return own;
  const Path path = gpu.wgmma ? Path::hopper : Path::portable;
  std::optional<Costs> other;  // a row with one source for every GPU has constants for one path only
  for (const Fitted& f : kFitted) {
    if (f.row != measured_as(row) || !contains(f.types, measured_as(row, type))) continue;
    if (f.path == path) return f.costs;
    other = f.costs;
  }
  return other;
}

double sum_of(const Counts& counts, const Costs& costs) {
  const Values how_often = std::bit_cast<Values>(counts), each = std::bit_cast<Values>(costs);
  double sum = 0;
  for (int i = 0; i < kCounts; ++i) sum += how_often[i] * each[i];
  return sum;
}

double seconds(Row row, Counter count, const GemmProblem& given, const Gpu& gpu) {
  // wgmma_specialized counts the tiles of a triangle. For other kernels, a triangle counts as a product of
  // half the columns. It takes longer than that (kOfTriangle), because tiles on the diagonal are computed as
  // a whole, and because there are fewer tiles.
  constexpr double kOfTriangle = 1.15;
  const bool is_half = given.triangle != 0 && row != Row::wgmma_specialized;
  GemmProblem p = given;
  // Groups count as a batch of groups of the same size, without those that must be empty.
  if (p.groups.are_given()) {
    int64_t& size = p.groups.by == GroupedBy::k ? p.k : p.m;
    if (p.groups.by != GroupedBy::k) p.batch = std::min(p.batch, p.m);
    size = std::max<int64_t>((size + p.batch - 1) / std::max<int64_t>(p.batch, 1), 1);
    p.groups = {};
  }
  if (is_half) p.triangle = 0, p.n = std::max<int64_t>(p.n / 2, 1);
  const auto own = fitted_here(row, p.type, gpu), costs = own ? own : costs_of(row, p.type, gpu);
  if (!costs) return std::numeric_limits<double>::infinity();
  const Counts counts = count(p, gpu);
  // A fit on one GPU cannot tell whether the multiply-adds limit a time, or whether the time only grows with
  // their number. So on a GPU with a lower peak, a prediction must not be less than the time of the
  // multiply-adds at that peak.
  const double least = own ? 0 : least_of_memory(row, p, gpu);
  const double model = std::max({sum_of(counts, *costs), counts.all, least});
  const double correction = own || !gpu.wgmma ? 0 : row_correction(row, p);
  return (is_half ? kOfTriangle : 1.0) * model * std::exp(correction);
}

void set_costs(uint64_t gpu, Row row, DType type, const Costs& costs) {
  OwnCosts& own = own_costs();
  {
    const std::unique_lock lock(own.mutex);
    own.costs.insert_or_assign({gpu, row, type}, costs);
    own.any = true;
  }
  tuning_changed();
}

bool has_costs(uint64_t gpu) {
  OwnCosts& own = own_costs();
  const std::shared_lock lock(own.mutex);
  return gpu != 0 && std::ranges::any_of(own.costs, [gpu](const auto& x) { return x.first.gpu == gpu; });
}

void reset_costs() {
  own_costs().any = false;
  {
    const std::unique_lock lock(own_costs().mutex);
    own_costs().costs.clear();
  }
  tuning_changed();
}

}  // namespace fastgemm::predict
