// Counts the work of a product on a CPU, along the routes of cpu/gemm/run_engine.h. Each count is in seconds
// at the nominal rate of this processor. So the constants of costs.def, which were fitted on a few
// processors, hold about as well for another clock, more cores or other caches. If threads share the work,
// the one with the most work counts.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/cpu.h"
#include "core/problem.h"

namespace fastgemm::cpu_predict {

enum Count {
  kCall,           // one cycle per call
  kFork,           // cycles: for each start of threads, one for each doubling of their number
  kMultiply,       // cycles of register tiles: the instruction, its latency or its loads limit them
  kTiles,          // cycles: one for each register tile
  kPackStraight,   // cycles: one for each vector packed from rows
  kPackAcross,     // cycles: one for each vector that packing transposes
  kPackScalar,     // cycles: one for each element that is packed by itself
  kEpilogue,       // cycles: one for each vector of C that goes through a buffer or is read again
  kScalar,         // cycles: one for each element of C, or of a vector, that is computed by itself
  kStream,         // cycles of few rows (few_rows.h) if rows of B are contiguous
  kStreamColumns,  // the same if columns of B are contiguous
  kSums,           // cycles: one for each step that halves the lanes of a vector, to add them
  kMember,         // cycles: one for each product of a batch
  kShared,         // bytes that another thread packed, at 16 a cycle
  kCache,          // bytes that do not fit in the L2 caches, at 16 a cycle and core
  kMemory,         // bytes that do not fit in the L3 cache, at the bandwidth of memory
  // The next counts are of the framework's product, whose routes are not known.
  kLargeCall,  // one cycle per call with more than 16^3 multiply-adds. In 16 bits, torch passes it to oneDNN
  // The next counts are of loops: in one thread for types without a library, and for others in batches of
  // tiny products, in small products of 16 bits, in those of a float16 vector, and in MKL. Otherwise they are
  // 0.
  kAlone,        // cycles: one for each multiply-add
  kAloneAcross,  // the same if both operands are read across their rows
  kAloneRows,    // the same if both are read along their rows, or along k in a product of a float16 vector
  kAloneAxpy,    // cycles: one for each row of b that is added to a row of C
  kAloneDot,     // cycles: one for each element of C if a is read along its rows and b along its columns
  kAloneEach,    // cycles: one for each element of C in a batch of tiny products
  kPadded,       // cycles of multiply-adds; m is rounded up to a multiple of 16, n of 32
  kReadA,        // cycles: one for each 64 bytes of a
  kReadB,        // cycles: one for each 64 bytes of b
  kWritten,      // cycles: one for each 64 bytes of the result
  kFewRows,      // cycles of multiply-adds if there are 2 to 16 rows
  kFewColumns,   // the same for 2 to 16 columns
  kFewAcross,    // the same for 1 to 16 columns, unless both operands are contiguous along k
  kSmallResult,  // the same for results of at most 64 x 64 elements
  kCounts
};
using Counts = std::array<double, kCounts>;
extern const std::array<std::string_view, kCounts> kCountNames;

// The rows that are predicted: the kernels, and `torch`, the framework's own product. The framework computes
// it by the library that it uses for the type on this processor.
enum class Row : uint8_t {
  simd,
  microkernel,
  pipelined,
  dot_bf16,
  dot_int8,
  amx_bf16,
  amx_int8,
  mmla_bf16,
  mmla_int8,
  torch
};
inline constexpr int kRows = 10;

// Whether a processor has the unit that a kernel needs.
bool runs_on(Row, const Cpu&);

// All counts are finite; sizes may be 0.
Counts count(Row, const GemmProblem&, const Cpu&, int threads);
// The counts of the framework's product (library.cpp).
Counts count_library(const GemmProblem&, const Cpu&, int threads);
// Whether the framework has a library for a type, instead of loops in one thread.
bool has_library_unit(DType, const Cpu&);

}  // namespace fastgemm::cpu_predict
