// Which tiles of C the residues are good enough for.
//
// Rounding to integers errs by up to half a unit an element: with so many moduli that rows have a norm of R,
// by about |a| |b| / R in a product, |.| being norms. Sums in float64 err by about 2^-53 times the sum of the
// magnitudes of products, s. The ratio s / (|a| |b|) is 0.64 for normal data, and small only where large
// elements of a row meet small ones of a column: data of wide exponents. It has a lower bound that needs no
// product: if a share f of a's elements is at least x (times the root of the mean square), and a share g of
// b's at least y, then at least a share f + g - 1 of the pairs is at least x y. Summed over a grid of
// thresholds, as an integral is:
//
//   s / (|a| |b|) >= sum of (x_i - x_i-1) (y_j - y_j-1) max(0, f_i + g_j - 1)
#pragma once

#include "cuda/device/platform.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET::residues {

// Tiles of C, and so the rows of A and of B that are judged together.
inline constexpr int kTileM = plans::kResidueM, kTileN = plans::kResidueN;

// The share of a row's k whose elements are at least so many times the root of the row's mean square. Which
// products err by how much follows from these alone (Limits).
inline constexpr int kThresholds = 4;
__host__ __device__ constexpr float threshold(int i) {
  return i == 0 ? 1.0f / 16 : i == 1 ? 0.25f : i == 2 ? 0.5f : 1.0f;
}

// Of a group of rows the least number of elements above each threshold; -1 where a row cannot be scaled.
struct Limits {
  int least[kThresholds];
};

// Which tiles are computed by residues: of matrices whose rows have these limits, or all where there are
// none.
struct Selection {
  const Limits *a, *b;
  float terms;  // k
  float bound;  // what s / (|a| |b|) has to be

  __device__ __forceinline__ bool takes(int tile_row, int tile_column) const {
    if (a == nullptr) return true;
    const Limits &f = a[tile_row], &g = b[tile_column];
    if (f.least[0] < 0 || g.least[0] < 0) return false;
    float sum = 0, x = 0;
    FASTGEMM_UNROLL
    for (int i = 0; i < kThresholds; ++i) {
      float y = 0;
      FASTGEMM_UNROLL
      for (int j = 0; j < kThresholds; ++j) {
        const float share = (float(f.least[i]) + float(g.least[j])) / terms - 1;
        sum += (threshold(i) - x) * (threshold(j) - y) * max(share, 0.0f);
        y = threshold(j);
      }
      x = threshold(i);
    }
    return sum >= bound;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET::residues
