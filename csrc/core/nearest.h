// Chooses a kernel for a problem from the static tables, by the nearest measured points.
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

// On a CPU the nearest point names the kernel. On a GPU this serves transpositions and additions only
// (products are predicted, csrc/cuda/gemm/predict), by these rules:
//
// - a measured problem gets the kernel that was fastest;
// - for any other problem, the speed of a kernel is estimated from the nine nearest points: the mean of its
//   speeds there, weighted by nearness, minus half their standard deviation, because the estimate is less
//   certain where the points disagree;
// - a library's kernel comes first unless another is estimated to be at least two per cent faster.
Ranking rank(const StaticTable&, const TuningKey&);

// The table for a problem, or null if none was measured. A float32 precision without a table of its own uses
// the table of IEEE products, because IEEE kernels are precise enough for every precision.
const StaticTable* static_table_for(const TuningKey&, std::string_view device);

}  // namespace fastgemm
