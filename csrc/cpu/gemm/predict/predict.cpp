#include "cpu/gemm/predict/predict.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <utility>

#include "core/tuning.h"
#include "cpu/gemm/predict/points.h"
#include "cpu/gemm/predict/weights.h"

namespace fastgemm::cpu_predict {
namespace {

// The model of a kernel for a type.
struct Entry {
  Costs costs{};
  Points points;        // where it was measured, and the error of the constants there
  bool fitted = false;  // the constants were fitted on this very processor
};
using Table = std::array<std::array<std::optional<Entry>, kArithmeticTypes>, kRows>;
using Tables = std::array<Table, kFamilies>;
using enum DType;

Entry& at(Table& table, Row row, DType type) {
  auto& entry = table.at(size_t(row)).at(size_t(type));
  return entry ? *entry : entry.emplace();
}

void add_costs(Tables& tables) {
  const auto add = [&](Row row, Family family, DType type,
                       std::initializer_list<std::pair<Count, double>> costs) {
    Costs& c = at(tables[size_t(family)], row, type).costs;
    for (const auto& [count, cost] : costs) c[count] = cost;
  };
#define FASTGEMM_CPU_COSTS(row, family, type, ...) add(Row::row, Family::family, type, {__VA_ARGS__});
#include "cpu/gemm/predict/costs.def"
#undef FASTGEMM_CPU_COSTS
}

void add_points(Tables& tables) {
  constexpr double kOctave = 0.6931471805599453;  // ln 2
  for (const ShippedSeries& series : shipped_series())
    for (const ShippedPoint& point : series.points) {
      const Points::Place place = place_of(point.problem(series.type), point.threads);
      for (size_t i = 0; i < kMostMeasured; ++i)
        if (const int percents = point.percents_of_octave[i]; percents != kNotTimed)
          at(tables[size_t(series.family)], series.rows[i], series.type)
              .points.add(place, {float(percents / 100.0 * kOctave)});
    }
}

Tables shipped() {
  Tables tables;
  add_costs(tables);
  add_points(tables);

  // No aarch64 processor was measured. The constant of a bfmmla or smmla is that of a multiply-add of the
  // float32 tile. The constants of all other work are those measured for bfloat16's and int8's tiles.
  Table& zen3 = tables[size_t(Family::zen3)];
  for (const auto& [row, type] : {std::pair{Row::mmla_bf16, bf16}, std::pair{Row::mmla_int8, i8}}) {
    at(zen3, row, type) = at(zen3, Row::pipelined, type);
    at(zen3, row, type).costs[kMultiply] = at(zen3, Row::pipelined, f32).costs[kMultiply];
  }

  // These products were not measured either. Except for the multiplications, int64 does the same work as
  // int32; after packing, uint8 and int16 do the same as int8. The time of torch's loops in int64 is not
  // known, so one of this library's kernels is chosen.
  for (Table& table : tables)
    for (const Row row : {Row::simd, Row::microkernel, Row::pipelined}) {
      auto& costs = table[size_t(row)];
      costs[size_t(i64)] = costs[size_t(i32)];
      costs[size_t(u8)] = costs[size_t(i16)] = costs[size_t(i8)];
    }
  // Two rates differ. They were measured with 128 x 128 x 128 on a Zen 3, where int64 is multiplied by
  // halves.
  constexpr double kByHalves = 0.83, kNineInstructions = 1.05;
  at(zen3, Row::simd, i64).costs[kMultiply] = kNineInstructions;
  for (const Row row : {Row::microkernel, Row::pipelined}) at(zen3, row, i64).costs[kMultiply] = kByHalves;
  return tables;
}

// The measurements of this processor, which replace those that ship with the library.
struct Own {
  std::shared_mutex mutex;
  Table table;
};
Own& own() {
  static Own o;
  return o;
}

// The entry in use, and whether it is this processor's own. Null if there is none. Call it with own().mutex
// locked.
std::pair<const Entry*, bool> find(Row row, DType type, const Cpu& cpu) {
  static const Tables tables = shipped();
  if (int(type) >= kArithmeticTypes) return {nullptr, false};
  if (const auto& entry = own().table[size_t(row)][size_t(type)]) return {&*entry, true};
  const auto& entry = tables[size_t(family_of(row, type, cpu))][size_t(row)][size_t(type)];
  return {entry ? &*entry : nullptr, false};
}

// The time that the constants predict, without measured points. A library that was not measured may be much
// faster than the library whose constants it gets. So its predicted time is divided by this factor, and an
// own kernel is chosen only if it clearly wins, by this factor times kWorthLeaving (core/can_run.cpp), 1.24.
// This product was tried on a Zen 4 with the constants of a Zen 3, and on an Intel with those of a Zen 4, in
// float32 and float64 from 64 x 64 x 64 on. With it, no choice was 10 % slower than torch. Without the
// factor, 13 of 26 choices on the Intel were.
double model_of(Row row, const Entry& entry, const GemmProblem& p, const Cpu& cpu, int threads) {
  constexpr double kUnmeasured = 1.145;
  const Counts counts = count(row, p, cpu, threads);
  const double model = std::inner_product(counts.begin(), counts.end(), entry.costs.begin(), 0.0);
  return row == Row::torch && !entry.fitted && !is_measured(p.type, cpu) ? model / kUnmeasured : model;
}

}  // namespace

std::optional<Costs> costs_of(Row row, DType type, const Cpu& cpu) {
  const std::shared_lock lock(own().mutex);
  const auto [entry, is_own] = find(row, type, cpu);
  return entry ? std::optional(entry->costs) : std::nullopt;
}

double seconds(Row row, const GemmProblem& p, const Cpu& cpu, int threads) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  if (!runs_on(row, cpu)) return kUnknown;
  const std::shared_lock lock(own().mutex);
  const auto [entry, is_own] = find(row, p.type, cpu);
  if (!entry) return kUnknown;
  const double model = model_of(row, *entry, p, cpu, threads);
  if (p.packed.is_given()) return model + conversion_seconds(p, cpu, row == Row::simd ? 1 : threads);
  if (!is_own && !is_measured(p.type, cpu)) return model;
  return model * std::exp(double(entry->points.correction(place_of(p, threads))));
}

void set_costs(Row row, DType type, const Costs& costs) {
  Own& o = own();
  const std::unique_lock lock(o.mutex);
  o.table.at(size_t(row)).at(size_t(type)) = Entry{costs, {}, true};
  tuning_changed();
}

void add_point(Row row, const GemmProblem& p, int threads, double measured) {
  const Cpu& cpu = current_cpu();
  Own& o = own();
  const std::unique_lock lock(o.mutex);
  const auto [entry, is_own] = find(row, p.type, cpu);
  if (!entry || !runs_on(row, cpu)) return;
  if (!is_own) {
    Entry& mine = at(o.table, row, p.type);
    mine = *entry;
    if (!is_measured(p.type, cpu)) mine.points = {};
  }
  Entry& mine = at(o.table, row, p.type);
  const double model = model_of(row, mine, p, cpu, threads);
  mine.points.put(place_of(p, threads), {float(std::log(measured / model))});
  tuning_changed();
}

void reset_costs() {
  Own& o = own();
  const std::unique_lock lock(o.mutex);
  o.table = {};
  tuning_changed();
}

Knowledge knowledge_of(const Cpu& cpu) {
  const std::shared_lock lock(own().mutex);
  for (const auto& of_types : own().table)
    for (const auto& entry : of_types)
      if (entry && entry->fitted) return Knowledge::tuned;
  return is_measured(DType::f32, cpu) ? Knowledge::measured : Knowledge::predicted;
}

std::optional<Row> row_of(std::string_view name) {
  constexpr std::array<std::string_view, kRows> names = {"simd",      "microkernel", "pipelined", "dot_bf16",
                                                         "dot_int8",  "amx_bf16",    "amx_int8",  "mmla_bf16",
                                                         "mmla_int8", "torch"};
  for (int i = 0; i < kRows; ++i)
    if (names[size_t(i)] == name) return Row(i);
  return std::nullopt;
}

}  // namespace fastgemm::cpu_predict
