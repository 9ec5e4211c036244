// The tiles of scaled_wgmma.
#pragma once

#include "core/min_max.h"

namespace fastgemm::plans {

// scaled_wgmma: tiles of (192, 64 or 128), of C or of C^T, so that as little as possible lies beyond C. A
// tile of 64 columns reads as many rows for half as many products.
inline constexpr int kScaledM = 192;
struct ScaledTile {
  bool turned;
  int columns;
};
inline ScaledTile scaled_tile(int64_t m, int64_t n) {
  ScaledTile best{};
  double least = 0;
  for (const bool turned : {false, true}) {
    for (const int columns : {128, 64}) {
      const int64_t rows = turned ? n : m, others = turned ? m : n;
      const double work = double(ceil_div(rows, kScaledM) * kScaledM) * double(ceil_div(others, columns)) *
                          (columns == 64 ? 80 : 128);
      if (best.columns == 0 || work < least) best = {turned, columns}, least = work;
    }
  }
  return best;
}

}  // namespace fastgemm::plans
