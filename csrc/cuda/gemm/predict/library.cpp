#include "cuda/gemm/predict/library.h"

#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "core/measured_points.h"
#include "core/tuning.h"
#include "cuda/gemm/predict/library_points.h"
#include "cuda/gemm/predict/tiles.h"

namespace fastgemm::predict {
namespace {

float log2_of(int64_t n) { return std::log2(float(std::max<int64_t>(n, 1))); }

// The measured points of a type and precision.
struct Series : MeasuredPoints<kAxes> {
  Costs costs;

  explicit Series(const Costs& c) : costs(c) {}
};

constexpr float kOctave = 0.69314718f;  // ln 2
// In 16 bits an own kernel is taken instead of the library up to this time behind it. A call of the library
// takes the host some microseconds longer, which short products show if they are not in a CUDA graph. In
// graphs this costs little: chosen / best is 1.016 with it and 1.015 without (check_choices.py --held-out, an
// H200).
constexpr double kCallSeconds = 0.3e-6;
constexpr uint64_t kShipped = 0;  // the number that stands for the series that ship with fastgemm

struct Key {
  uint64_t gpu;
  DType type;
  Precision precision;
  auto operator<=>(const Key&) const = default;
};

// All series: those that ship, and those of tuned GPUs. A series is never changed, only replaced.
class AllSeries {
 public:
  static AllSeries& instance() {
    static AllSeries all;
    return all;
  }
  std::shared_ptr<const Series> find(uint64_t gpu, DType type, Precision precision) const {
    const std::shared_lock lock(mutex_);
    // float32 precisions without a series of their own use that of IEEE products, which are the library's
    // slowest.
    for (const Key& key : {Key{gpu, type, precision}, Key{gpu, type, Precision::ieee}})
      if (const auto it = series_.find(key); it != series_.end()) return it->second;
    return nullptr;
  }
  bool has(uint64_t gpu) const {
    const std::shared_lock lock(mutex_);
    const auto it = series_.lower_bound({gpu, DType{}, Precision{}});
    return gpu != kShipped && it != series_.end() && it->first.gpu == gpu;
  }
  void set(const Key& key, Series series) {
    const std::unique_lock lock(mutex_);
    series_.insert_or_assign(key, std::make_shared<const Series>(std::move(series)));
  }
  void keep_shipped() {
    const std::unique_lock lock(mutex_);
    std::erase_if(series_, [](const auto& entry) { return entry.first.gpu != kShipped; });
  }

 private:
  AllSeries() {
    for (const ShippedSeries& from : shipped_series()) {
      Series s(from.costs);
      for (const ShippedPoint& point : from.points) {
        s.add(place_of(point.problem(from.type)), {float(point.percent_of_octave) / 100 * kOctave});
      }
      series_.insert_or_assign(Key{kShipped, from.type, from.precision},
                               std::make_shared<const Series>(std::move(s)));
    }
  }
  mutable std::shared_mutex mutex_;
  std::map<Key, std::shared_ptr<const Series>> series_;
};

// The factor on the library's time for a product with a c, which no measured point has. Adding c makes
// fastgemm's kernels slower, the more the shorter k is, while the library hides it in its epilogue.
double share_with_c(const GemmProblem& p) {
  if (p.beta == 0 || p.batch * p.m * p.n < 1 << 20) return 1;
  return std::exp2(-std::min(0.5, std::log2(1 + 800.0 / double(std::max<int64_t>(p.k, 1)))));
}

}  // namespace

// The weights of the axes, in octaves of m, n or k. Another layout counts as a distance of two octaves. An
// alignment of rows to 16 or to 4 bytes counts as 1.7, and one to 8 bytes as 1.2. An octave of the batch
// counts about half.
Place place_of(const GemmProblem& p) {
  const Facts f = facts(p);
  constexpr float kBatch = 0.5477f, kLayout = 2, kAligned = 1.7321f, kHalf = 1.2247f;
  const auto is = [](bool x, float weight) { return x ? weight : 0.f; };
  return {log2_of(f.m),
          log2_of(f.n),
          log2_of(f.k),
          kBatch * log2_of(f.batch),
          is(!f.a.along_k, kLayout),
          is(!f.b.along_k, kLayout),
          is(f.a.alignment >= 16, kAligned),
          is(f.b.alignment >= 16, kAligned),
          is(f.out_alignment >= 16, kAligned),
          is(f.a.alignment >= 8, kHalf),
          is(f.b.alignment >= 8, kHalf),
          is(f.out_alignment >= 8, kHalf),
          is(f.a.alignment >= 4, kAligned),
          is(f.b.alignment >= 4, kAligned),
          is(f.out_alignment >= 4, kAligned)};
}

// The library's kernels have tiles of many sizes and split k. This function considers a few such kernels, and
// returns the counts of the fastest.
Counts count_library(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const bool tensor = p.type != DType::i32 && (p.type != DType::f32 || p.precision == Precision::tf32);
  const double multiply_adds_a_cycle = rate(gpu, tensor ? Unit::tensor : Unit::fma, p.type);
  const int64_t depth = 128 / f.size, most_splits = std::max<int64_t>(ceil_div(f.k, depth) / 8, 1);
  Counts best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [m, n, resident] : {std::array<int64_t, 3>{128, 256, 1}, {128, 128, 1}, {64, 64, 3}}) {
    const int64_t room = gpu.multiprocessors * resident / f.tiles(m, n);
    for (const int64_t splits : {int64_t{1}, std::clamp<int64_t>(room, 1, most_splits)}) {
      const Counts c = count_tiles(f, {m, n, depth, resident, splits}, gpu, multiply_adds_a_cycle);
      const double time = c.waves * 2000 + c.busiest * 1.3 + c.steps * 200 + c.more_launches * 2500 +
                          c.partial * 1.5 + c.read + c.written;
      if (time < least) least = time, best = c;
    }
  }
  return best;
}

double limit_seconds(const GemmProblem& p, const Gpu& gpu) {
  const Facts f = facts(p);
  const bool tensor = p.type != DType::i32 && (p.type != DType::f32 || p.precision != Precision::ieee);
  const double unit = rate(gpu, tensor ? Unit::tensor : Unit::fma, p.type);
  const double most = std::max(unit, rate(gpu, Unit::fma, p.type)) * gpu.multiprocessors * gpu.clock;
  const double bytes = f.a.bytes + f.b.bytes + f.result_bytes + f.c_bytes;
  return std::max(p.flops() / 2 / most, bytes / gpu.bandwidth);
}

Knowledge knowledge_of(const Gpu& gpu) {
  if (AllSeries::instance().has(gpu.number) || has_costs(gpu.number)) return Knowledge::tuned;
  // Kernels and library were measured on an H200. Other GPUs of its compute capability differ only in what
  // struct Gpu says.
  return gpu.wgmma ? Knowledge::measured : Knowledge::predicted;
}

double library_seconds(const GemmProblem& p, const Gpu& gpu) {
  auto series = gpu.number ? AllSeries::instance().find(gpu.number, p.type, p.precision) : nullptr;
  // A type that was not tuned on this GPU has the shipped series.
  if (!series && gpu.wgmma) series = AllSeries::instance().find(kShipped, p.type, p.precision);
  if (!series) return limit_seconds(p, gpu);
  const double model = sum_of(count_library(p, gpu), series->costs);
  return model * std::exp(double(series->correction(place_of(p)))) * share_with_c(p);
}

double library_to_beat(const GemmProblem& p, const Gpu& gpu) {
  const bool is_half = p.type == DType::f16 || p.type == DType::bf16;
  return library_seconds(p, gpu) + (is_half ? kCallSeconds : 0);
}

void set_library(uint64_t gpu, DType type, Precision precision, const Costs& costs,
                 std::span<const LibraryPoint> points, const Gpu& here) {
  Series s(costs);
  for (const LibraryPoint& point : points) {
    const double model = sum_of(count_library(point.problem, here), costs);
    s.add(place_of(point.problem), {float(std::log(point.seconds / model))});
  }
  AllSeries::instance().set({gpu, type, precision}, std::move(s));
  tuning_changed();
}

void reset_library() {
  AllSeries::instance().keep_shipped();
  tuning_changed();
}

}  // namespace fastgemm::predict
