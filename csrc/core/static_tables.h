// The measurements that ship with the library: which kernel was fastest for a few hundred problems of each
// kind, and how fast the others were. core/nearest.h says how a kernel for any other problem follows from
// them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/table.h"

namespace fastgemm {

// Speeds are logarithms, in hundredths of an octave: 100 is twice as fast as the table's first kernel, -100
// half as fast.
inline constexpr size_t kMostSpeeds = 16;

// log2(n) plus a constant, linear between powers of two: the bits of a float, read as a number.
constexpr float log_size(int64_t n) {
  return float(std::bit_cast<uint32_t>(float(n < 1 ? 1 : n))) * 0x1p-23f;
}

// One measured problem; all matrices were contiguous.
struct Measured {
  constexpr Measured(uint8_t threads, int64_t batch, int64_t m, int64_t n, int64_t k, bool a_transposed,
                     bool b_transposed, uint8_t fastest, std::array<int16_t, kMostSpeeds> speeds = {})
      : batch(batch),
        m(m),
        n(n),
        k(k),
        log_batch(log_size(batch)),
        log_m(log_size(m)),
        log_n(log_size(n)),
        log_k(log_size(k)),
        speeds(speeds),
        threads(threads),
        fastest(fastest),
        a_transposed(a_transposed),
        b_transposed(b_transposed) {}

  int64_t batch, m, n, k;
  float log_batch, log_m, log_n, log_k;
  std::array<int16_t, kMostSpeeds> speeds;  // one for each of the table's first kernels
  uint8_t threads;                          // 0 on a GPU
  uint8_t fastest;                          // an index into the table's kernels, for this very problem
  bool a_transposed, b_transposed;
};

// All measured points of one device, operation, type and precision.
struct StaticTable {
  std::string_view device;  // as cpu_model() or current_gpu_name() returns it
  Op op;
  DType type;
  Precision precision;
  uint8_t libraries;  // the first ones are libraries'; only a clearly faster kernel replaces them
  uint8_t speeds;     // how many kernels have speeds; 0 on a CPU, where only the nearest point decides
  std::span<const std::string_view> kernels;
  std::span<const Measured> points;

  bool on_gpu() const { return speeds > 0; }
};
std::span<const StaticTable> static_tables();  // generated: core/static_tables.cpp

}  // namespace fastgemm
