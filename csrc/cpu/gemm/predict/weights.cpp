#include "cpu/gemm/predict/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/packed_weight.h"
#include "cpu/gemm/predict/families.h"

namespace fastgemm::cpu_predict {

bool in_pairs(const GemmProblem& p, bool has_unit) {
  const bool whole_lines = p.packed.by_rows(p.k) || p.packed.group_k % 128 == 0;
  return has_unit && p.type == DType::bf16 && (bits_of(p.packed.code) == 8 || whole_lines);
}

double bytes_of_weight(const PackedWeight& w) {
  const double group = std::max(1.0, double(w.group_n) * double(w.group_k));
  return bits_of(w.code) / 8.0 + double(size_of(w.scale) + packed::zero_size(w)) / group;
}

namespace {

// The cycles of a weight, of each format of codes.
struct Formats {
  double four_bits, int8, e4m3;

  double of(Code code) const { return bits_of(code) == 4 ? four_bits : code == Code::e4m3 ? e4m3 : int8; }
};

// Cycles at 64 bytes a vector. Weights of streamed_weights are counted in vectors of 16.
struct Streaming {
  Formats lookup;         // from a line of codes to a vector of weights
  double product, pairs;  // of that vector and a row of x: one that starts in each cycle; two numbers at once
  double far;             // how much longer both take for more rows of x than the L1 cache holds
  double call;
  Formats engines;  // a weight that an engine converts to a number in memory, for its packing
};
constexpr Streaming kZen5{{0.6, 1.0, 1.0}, 1.2, 0.75, 1.6, 15e3, {0.25, 0.25, 0.25}};
// Emerald Rapids: 1 to 100 rows of x, weights from 512 x 2 to 2048 x 1024.
constexpr Streaming kIntel{{2.1, 4.2, 6.5}, 1.5, 1.2, 1.05, 5e3, {0.55, 0.85, 1.0}};

const Streaming& streaming_of(const GemmProblem& p, const Cpu& cpu) {
  const Family family = family_of(Row::pipelined, p.type, cpu);
  return family == Family::zen3 || family == Family::zen4 ? kZen5 : kIntel;
}

// Cycles that depend on neither k nor the format, measured on the Emerald Rapids. A row of the weight reads
// its scales, and converts what fills no line separately. A number of the result is a sum of lanes.
constexpr double kRowOfWeight = 32, kRemainder = 20, kResult = 10;
// The same for an engine's row of a weight.
constexpr double kRowOfEngine = 15;

}  // namespace

double streamed_seconds(const GemmProblem& p, const Cpu& cpu, int threads) {
  const Streaming& cost = streaming_of(p, cpu);
  const bool pairs = in_pairs(p, cpu.dot_bf16);
  const int64_t rows =
      p.m > 8 ? (p.m + 7) / 8 * 8 : int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(p.m, 1))));
  const double slow = cpu.isa == Isa::avx512 ? 1 : cpu.isa == Isa::avx2 ? 2 : 8;
  const double lookups = slow * double((rows + 7) / 8) * cost.lookup.of(p.packed.code);
  // One pair product is assumed to start in each cycle, as for dot_bf16.
  const double products = double(rows) * (pairs ? cost.pairs : cost.product / cpu.vector_issue);
  // Codes that fill no line fill whole vectors.
  const double line = bits_of(p.packed.code) == 4 ? 128 : 32,
               vector = cpu.vector_bytes() / (pairs ? 2.0 : 4.0);
  const double rest = std::fmod(double(p.k), line),
               k = double(p.k) - rest + std::ceil(rest / vector) * vector;
  const double vectors = k * 4.0 / cpu.vector_bytes(), far = p.m > 16 ? cost.far : 1.0;
  const double row = kRowOfWeight + (rest > 0 ? kRemainder : 0.0) + kResult * double(rows);
  const double work = double(p.n) * (vectors * far * (lookups + products) + row) / cpu.clock;

  const double weights = double(p.n) * double(p.k);
  const double on =
      std::clamp(std::min(weights / (1 << 18), double(p.n) / 64), 1.0, double(std::max(threads, 1)));
  const double bytes = weights * bytes_of_weight(p.packed);
  const double cold = std::max(0.0, 1 - double(cpu.l3) / std::max(bytes, 1.0));
  const double reading = bytes * cold / std::min(cpu.core_bandwidth * on, cpu.bandwidth);
  // A call, a fork, and the copy of x, which one thread makes.
  constexpr double kFork = 20e3;
  const double alone = cost.call + (on > 1 ? kFork : 0.0) + double(p.m) * double(p.k);
  return alone / cpu.clock + std::max(work / on, reading);
}

double conversion_seconds(const GemmProblem& p, const Cpu& cpu, int threads) {
  const double of_weight = streaming_of(p, cpu).engines.of(p.packed.code) * 64.0 / cpu.vector_bytes();
  return double(p.n) * (double(p.k) * of_weight + kRowOfEngine) / cpu.clock / std::max(threads, 1);
}

}  // namespace fastgemm::cpu_predict
