// Which kernel the static tables name for a problem: the rule
// by which the nearest measured points speak for it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/static_tables.h"
#include "core/tuning.h"

namespace fastgemm {

// The kernels of a table in the order in which they should be tried, as indices into StaticTable::kernels.
struct Ranking {
  std::array<uint8_t, kMostSpeeds + 1> kernels;
  size_t count = 0;
};

// On a CPU the nearest point names the kernel. On a GPU (transpositions and sums; products are predicted,
// csrc/cuda/gemm/predict):
//
// - a problem that was measured takes the kernel that was fastest;
// - for any other problem, the speed of a kernel is estimated as the mean of its speeds at the nine nearest
//   points, weighted by their nearness, less half their standard deviation: where neighbours disagree, the
//   estimate is uncertain;
// - a library's kernel comes first unless another is estimated to be faster by two per cent.
Ranking rank(const StaticTable&, const TuningKey&);

// The table for a problem, or null where none was measured. A float32 precision without a table of its own
// takes the table of IEEE products, whose kernels are good enough for every precision.
const StaticTable* static_table_for(const TuningKey&, std::string_view device);

}  // namespace fastgemm
