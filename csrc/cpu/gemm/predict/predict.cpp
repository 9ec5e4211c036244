#include "cpu/gemm/predict/predict.h"

#include <atomic>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "core/tuning.h"

namespace fastgemm::cpu_predict {
namespace {

using Table = std::array<std::array<std::optional<Costs>, kArithmeticTypes>, kRows>;
struct Tables {
  Table avx512, avx2;  // of processors with these vectors, avx2 of those with shorter ones, too
};
using enum DType;

Tables shipped() {
  Tables tables;
  const auto add = [](Table& table, Row row, DType type,
                      std::initializer_list<std::pair<Count, double>> costs) {
    Costs& c = table[size_t(row)][size_t(type)].emplace(Costs{});
    for (const auto& [count, cost] : costs) c[count] = cost;
  };
#define FASTGEMM_CPU_COSTS(row, isa, type, ...) add(tables.isa, Row::row, type, {__VA_ARGS__});
#include "cpu/gemm/predict/costs.def"
#undef FASTGEMM_CPU_COSTS

  // No processor with AMX was measured. A tile unit can do 8 times what the dot products do; half of its rate
  // is assumed, since its four loads take as long as its four products, and for everything around it what
  // was measured with dot products.
  const auto like = [&](Row row, Row measured, DType type) {
    Table& table = tables.avx512;
    table[size_t(row)][size_t(type)] = table[size_t(measured)][size_t(type)];
    (*table[size_t(row)][size_t(type)])[kMultiply] = 2;
  };
  like(Row::amx_bf16, Row::dot_bf16, bf16);
  like(Row::amx_int8, Row::dot_int8, i8);

  // Nor one with bfmmla and smmla, nor any aarch64. A product of theirs takes the place of a multiply-add of
  // the float32 tile; for everything around it stands what was measured of bfloat16's and int8's tiles.
  for (const auto& [row, type] : {std::pair{Row::mmla_bf16, bf16}, std::pair{Row::mmla_int8, i8}}) {
    const auto& pipelined = tables.avx2[size_t(Row::pipelined)];
    auto& costs = tables.avx2[size_t(row)][size_t(type)];
    costs = pipelined[size_t(type)];
    (*costs)[kMultiply] = (*pipelined[size_t(f32)])[kMultiply];
  }

  // Nor were these products. Around the multiplications those of int64 do what those of int32 do, and uint8
  // and int16 are int8 from their packing on. What torch's loops take in int64 is not known, which leaves the
  // choice to the kernels of this library.
  for (Table* table : {&tables.avx512, &tables.avx2})
    for (const Row row : {Row::simd, Row::microkernel, Row::pipelined}) {
      auto& costs = (*table)[size_t(row)];
      costs[size_t(i64)] = costs[size_t(i32)];
      costs[size_t(u8)] = costs[size_t(i16)] = costs[size_t(i8)];
    }
  // Two rates apart from that, of 128 x 128 x 128 on a Zen 3, where int64 is multiplied by halves.
  constexpr double kByHalves = 0.83, kNineInstructions = 1.05;
  (*tables.avx2[size_t(Row::simd)][size_t(i64)])[kMultiply] = kNineInstructions;
  for (const Row row : {Row::microkernel, Row::pipelined})
    (*tables.avx2[size_t(row)][size_t(i64)])[kMultiply] = kByHalves;
  return tables;
}

struct Costing {
  std::shared_mutex mutex;
  Table own;
  std::atomic<bool> any = false;
};
Costing& fitted() {
  static Costing f;
  return f;
}

}  // namespace

std::optional<Costs> costs_of(Row row, DType type, const Cpu& cpu) {
  static const Tables tables = shipped();
  if (int(type) >= kArithmeticTypes) return std::nullopt;
  if (Costing& f = fitted(); f.any) {
    const std::shared_lock lock(f.mutex);
    if (const auto& own = f.own[size_t(row)][size_t(type)]) return own;
  }
  const Isa isa = row == Row::torch ? cpu.library.isa : cpu.isa;
  const Table& table = isa == Isa::avx512 ? tables.avx512 : tables.avx2;
  // With AVX512-FP16, float16 is MKL's like float32.
  if (row == Row::torch && type == f16 && has_library_unit(f16, cpu)) type = f32;
  return table[size_t(row)][size_t(type)];
}

double seconds(Row row, const GemmProblem& p, const Cpu& cpu, int threads) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  if (!runs_on(row, cpu)) return kUnknown;
  const std::optional<Costs> costs = costs_of(row, p.type, cpu);
  if (!costs) return kUnknown;
  const Counts counts = count(row, p, cpu, threads);
  double sum = 0;
  for (size_t i = 0; i < kCounts; ++i) sum += counts[i] * (*costs)[i];
  return sum;
}

void set_costs(Row row, DType type, const Costs& costs) {
  Costing& f = fitted();
  const std::unique_lock lock(f.mutex);
  f.own.at(size_t(row)).at(size_t(type)) = costs;
  f.any = true;
  tuning_changed();
}

void reset_costs() {
  Costing& f = fitted();
  const std::unique_lock lock(f.mutex);
  f.own = {};
  f.any = false;
  tuning_changed();
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
