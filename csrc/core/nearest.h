// Which kernel the static tables name for a problem: the rule by which the nearest measured points speak for
// it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/static_tables.h"
#include "core/tuning.h"

namespace fastgemm {

// Kernels of a table in the order in which they should be tried: indices into StaticTable::kernels.
struct Ranking {
  std::array<uint8_t, kMostSpeeds + 1> kernels;
  size_t count = 0;
};

// On a CPU: the kernel of the nearest point. On a GPU:
//
// - a problem that was measured, its rows aligned as they were then, takes what was fastest;
// - for any other, the speed of a kernel is the mean of its speeds at the nine nearest points, near ones
//   counting more, less half their standard deviation: where neighbours disagree, none of
//   their speeds is certain;
// - the library's kernel comes first unless another is faster by two per cent after that, by more where there
//   is a c to add.
//
// tests/cpp/static_tables_test.cpp leaves out each point in turn and holds what the others say of it against
// what was measured there.
Ranking rank(const StaticTable&, const TuningKey&);

// The table for a problem, or null where none was measured. A precision of float32 without a table of its own
// takes that of IEEE, whose kernels are good enough for every precision.
const StaticTable* static_table_for(const TuningKey&, std::string_view device);

}  // namespace fastgemm
