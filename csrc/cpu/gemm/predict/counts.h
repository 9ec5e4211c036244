// What a product takes on a CPU, counted along the routes of cpu/gemm/run_engine.h and in units of this
// processor: each count is seconds at the nominal rate of what it counts, so that the constants of costs.def,
// which were fitted on one processor with AVX-512 and one without, hold about as well for another clock, more
// cores or other caches. Where threads share the work the one with most of it counts.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/cpu.h"
#include "core/problem.h"

namespace fastgemm::cpu_predict {

enum Count {
  kCall,           // a cycle
  kFork,           // cycles: one for each time that threads start together, and each doubling of them
  kMultiply,       // cycles that register tiles take at the rate of the instruction, its latency or its loads
  kTiles,          // cycles: one for each register tile
  kPackStraight,   // cycles: one for each vector packed from rows
  kPackAcross,     // cycles: one for each vector transposed on its way
  kPackScalar,     // cycles: one for each element packed alone
  kEpilogue,       // cycles: one for each vector of C that goes through a buffer or is read again
  kScalar,         // cycles: one for each element of C, or of a vector, that is treated alone
  kStream,         // cycles that few rows take of B by rows
  kStreamColumns,  // and of B by columns
  kShared,         // bytes that another thread packed, 16 a cycle
  kCache,          // bytes that do not fit the L2 caches, 16 a cycle and core
  kMemory,         // bytes that do not fit the L3 cache, at the bandwidth of memory
  // Of the framework's product, whose routes are not known.
  kLargeCall,  // a cycle, for more than 16^3 multiply-adds, which torch hands to oneDNN
  kMember,     // cycles: one for each product of a batch
  // By loops of one thread, where no library serves the type; 0 elsewhere.
  kAlone,        // cycles: one for each multiply-add
  kAloneAcross,  // where both operands are read across their rows
  kAloneRows,    // and where both are read along their rows
  kAloneAxpy,    // cycles: one for each row of b that is added to a row of C
  kAloneDot,     // cycles: one for each element of C, where a is read along its rows and b along its columns
  kPadded,       // cycles of multiply-adds, m in multiples of 16 and n of 32
  kReadA,        // cycles: 64 bytes of a each
  kReadB,        // cycles: 64 bytes of b each
  kWritten,      // cycles: 64 bytes of the result each
  kFewRows,      // cycles of multiply-adds where there are 2 to 16 rows
  kFewColumns,   // and of 2 to 16 columns
  kFewAcross,    // and of 1 to 16 columns, unless both operands run along k
  kSmallResult,  // and of no more than 64 x 64 elements
  kCounts
};
using Counts = std::array<double, kCounts>;
extern const std::array<std::string_view, kCounts> kCountNames;

// What is predicted: kernels, and the framework's product by the library that serves a type and processor.
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
// Of the framework's product (library.cpp).
Counts count_library(const GemmProblem&, const Cpu&, int threads);
// Whether it has better than loops of one thread for a type.
bool has_library_unit(DType, const Cpu&);

}  // namespace fastgemm::cpu_predict
