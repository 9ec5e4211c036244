// The tile of C of each kernel, as the counts see it.
#pragma once

#include <algorithm>

#include "cpu/gemm/predict/counts.h"

namespace fastgemm::cpu_predict {

constexpr int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
constexpr int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }

// The Traits of a kernel (cpu/gemm/engine.h) as numbers.
struct Tile {
  int64_t rows, vectors, lanes, group, depth;  // kMR, kNR / lanes, accumulators in a vector, kGroup, kKC
  int64_t block = 0;                           // depth of a k-block in the five loops; 0: `depth`
  int64_t unit;                                // bytes of a unit of a packed panel
  double issue;                                // vector products that start in a cycle
  double unit_cycles = 0;                      // cycles for a k-group of a whole tile; 0: no tile unit
  bool one_sum = false;                        // each product waits for the one before it
  bool in_place = false, partial_rows = true;
  int64_t unpacked_columns = 0;  // Traits::unpacked_columns(), if A can be read in place

  int64_t columns() const { return vectors * lanes; }
  // The cycles of a k-group: the largest of the time to start its products, of its loads, and of the latency
  // of the sums.
  double step(int64_t r, int64_t v) const {
    constexpr double kLatency = 4, kLoads = 2;
    if (unit_cycles > 0) return unit_cycles;
    if (one_sum) return kLatency * double(r);
    return std::max({double(r * v) / issue, kLatency, double(r + v) / kLoads});
  }
};

inline bool has_large_l2(const Cpu& cpu) { return cpu.l2 >= 5 << 18; }
inline bool saves_packing(const Cpu& cpu) { return cpu.isa == Isa::avx512 && has_large_l2(cpu); }

// Integers of 8 and 16 bits are multiplied in pairs of int16.
inline bool goes_in_pairs(DType type) { return is_integer(type) && element_size(type) < 4; }

inline Tile tile_of(Row row, DType type, const Cpu& cpu) {
  const bool wide = cpu.isa == Isa::avx512, integer = is_integer(type);
  Tile t{};
  const int64_t acc = element_size(sum_type(type));
  t.lanes = cpu.vector_bytes() / acc, t.unit = acc, t.vectors = 2;
  const bool halves = type == DType::i64 && !wide;  // HalvesMultiplyAdd
  t.rows = halves ? 2 : wide ? (integer ? 12 : 14) : 6;
  t.group = goes_in_pairs(type) ? 2 : 1, t.depth = 512 * t.group;
  // An integer multiply-add takes two instructions, or four if it is done by halves.
  t.issue = cpu.vector_issue / (halves ? 4 : integer ? 2 : 1);
  t.in_place = type == sum_type(type);
  switch (row) {
    case Row::simd:
      t.rows = 4, t.vectors = 1, t.in_place = false, t.one_sum = true;
      break;
    case Row::dot_bf16:
      t.rows = 12, t.group = 2, t.depth = 4096, t.issue = 1;
      break;
    case Row::dot_int8:
      t.rows = 12, t.group = 4, t.depth = 8192, t.issue = cpu.vector_issue;
      break;
    case Row::amx_bf16:
    case Row::amx_int8:
      t.rows = 32, t.group = row == Row::amx_bf16 ? 32 : 64, t.depth = 16 * t.group, t.block = 4 * t.depth;
      t.unit = 64, t.unit_cycles = 4 * 16;  // four tile products; here a unit is a whole k-group
      t.partial_rows = false;
      break;
    case Row::mmla_bf16:
    case Row::mmla_int8:
      // 4 x 6 vectors of 2 x 2 sums count as 8 rows of three vectors.
      t.rows = 8, t.vectors = 3, t.unit = 8, t.group = row == Row::mmla_bf16 ? 4 : 8;
      t.depth = 512 * t.group, t.issue = cpu.vector_issue;
      break;
    case Row::pipelined:
      if (has_large_l2(cpu)) t.block = t.depth * 8 / t.unit;
      t.unpacked_columns = !t.in_place ? 0 : saves_packing(cpu) ? 1536 : 256;
      break;
    default:
      break;
  }
  return t;
}

}  // namespace fastgemm::cpu_predict
