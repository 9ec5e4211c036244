// Whether level 5 splits k, and how: when C has too few tiles to occupy the device, several blocks share the
// k of a tile, write their sums as matrices of their own, and a second launch adds those in a fixed order
// (parts/split_k.cuh).
#pragma once

#include "cuda/gemm/parts/split_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// How many ways to split k, each at least `least` of it. The time of a launch is that of the fullest
// multiprocessor, counted in whole tiles; a block that has one to itself hides less latency, and every split
// costs the transfer of its sums (a quarter of tiles / k, in the same unit, on an H200).
inline int choose_splits(int64_t tiles, int64_t k, int64_t least) {
  const int64_t processors = multiprocessors();
  int best = 1;
  double best_time = double(ceil_div(tiles, processors));
  for (int splits = 2; splits * least <= k && (splits - 1) * tiles < 4 * processors; ++splits) {
    const int64_t blocks = tiles * splits;
    const double alone = blocks <= processors ? 1.15 : 1.0;
    const double time =
        alone * double(ceil_div(blocks, processors)) / splits + 0.25 * double(blocks) / double(k);
    if (time < best_time) best = splits, best_time = time;
  }
  return best;
}

}  // namespace fastgemm::FASTGEMM_TARGET
