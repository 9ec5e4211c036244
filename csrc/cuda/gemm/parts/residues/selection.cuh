// For which tiles of C the residues are accurate enough.
//
// Let a be a row of A, b a column of B, |.| the norm, and s the sum of the magnitudes of their products.
// Rounding to integers has an error of up to half a unit for each element. If the moduli allow rows of norm
// R, these errors add up to about |a| |b| / R in the product. Sums in float64 have an error of about 2^-53 s.
// The ratio s / (|a| |b|) is 0.64 for normally distributed data. It is small only where large elements of a
// row are multiplied by small elements of a column, as in data of widely spread exponents. A lower bound of
// the ratio needs no product: if a share f of a's elements is at least x (times their root mean square), and
// a share g of b's elements at least y, then at least a share f + g - 1 of their products is at least x y.
// This is summed over a grid of thresholds, like an integral:
//
//   s / (|a| |b|) >= sum of (x_i - x_i-1) (y_j - y_j-1) max(0, f_i + g_j - 1)
#pragma once

#include "cuda/device/platform.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET::residues {

// The size of a tile of C, and so the number of rows of A and of B that are judged together.
inline constexpr int kTileM = plans::kResidueM, kTileN = plans::kResidueN;

// For each threshold t, the pre-pass counts the elements of a row that are at least t times the row's root
// mean square. The accuracy bound needs only these counts (Limits).
inline constexpr int kThresholds = 4;
__host__ __device__ constexpr float threshold(int i) {
  return i == 0 ? 1.0f / 16 : i == 1 ? 0.25f : i == 2 ? 0.5f : 1.0f;
}

// The least number of elements above each threshold, among the rows of a group; -1 if a row cannot be scaled.
struct Limits {
  int least[kThresholds];
};

// Which tiles are computed by residues, from the limits of their rows. Without limits all tiles are.
struct Selection {
  const Limits *a, *b;
  float terms;  // k
  float bound;  // the least s / (|a| |b|)

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
