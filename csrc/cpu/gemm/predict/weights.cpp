#include "cpu/gemm/predict/weights.h"

#include <algorithm>
#include <bit>

#include "core/packed_weight.h"

namespace fastgemm::cpu_predict {

bool in_pairs(const GemmProblem& p, bool has_unit) {
  const bool whole_lines = p.packed.by_rows(p.k) || p.packed.group_k % 128 == 0;
  return has_unit && p.type == DType::bf16 && (bits_of(p.packed.code) == 8 || whole_lines);
}

double bytes_of_weight(const PackedWeight& w) {
  const double group = std::max(1.0, double(w.group_n) * double(w.group_k));
  return bits_of(w.code) / 8.0 + double(size_of(w.scale) + packed::zero_size(w)) / group;
}

double streamed_seconds(const GemmProblem& p, const Cpu& cpu, int threads) {
  const double weights = double(p.n) * double(p.k);
  // Cycles of a vector of weights: their conversion, and a product for each row of x.
  const bool pairs = in_pairs(p, cpu.dot_bf16), wide = cpu.isa == Isa::avx512;
  const int64_t rows =
      p.m > 8 ? (p.m + 7) / 8 * 8 : int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(p.m, 1))));
  const double passes = double((rows + 7) / 8), slow = wide ? 1 : cpu.isa == Isa::avx2 ? 2 : 8;
  const double convert = slow * (bits_of(p.packed.code) == 4 ? 0.6 : 1.0);
  // One pair product is assumed to start in each cycle, as for dot_bf16.
  const double product = pairs ? 0.75 : 1.2 / cpu.vector_issue;
  // More rows of x do not stay in the L1 cache.
  const double far = p.m > 16 ? 1.6 : 1.0;
  const double cycles = far * (passes * convert + double(rows) * product);
  const double work = weights * cycles * 4.0 / cpu.vector_bytes() / cpu.clock;
  const double on =
      std::clamp(std::min(weights / (1 << 18), double(p.n) / 64), 1.0, double(std::max(threads, 1)));
  const double bytes = weights * bytes_of_weight(p.packed);
  const double cold = std::max(0.0, 1 - double(cpu.l3) / std::max(bytes, 1.0));
  const double reading = bytes * cold / std::min(cpu.core_bandwidth * on, cpu.bandwidth);
  // A call, a fork, and the copy of x, which one thread makes.
  constexpr double kCall = 15e3, kFork = 20e3;
  const double alone = kCall + (on > 1 ? kFork : 0.0) + double(p.m) * double(p.k);
  return alone / cpu.clock + std::max(work / on, reading);
}

double conversion_seconds(const GemmProblem& p, const Cpu& cpu, int threads) {
  const double cycles = 16.0 / cpu.vector_bytes();  // of a weight: 1/4 with AVX-512
  return double(p.n) * double(p.k) * cycles / cpu.clock / std::max(threads, 1);
}

}  // namespace fastgemm::cpu_predict
