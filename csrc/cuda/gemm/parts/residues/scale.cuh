// The second pass: finds the power of two of each row, and rules out groups of rows that must fail the
// accuracy bound.
#pragma once

#include "cuda/gemm/parts/residues/operand.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

__device__ __forceinline__ double power_of_two(int e) { return from_words(uint32_t(1023 + e) << 20, 0); }

template <class T>
__device__ __forceinline__ Norms norms_of(const Source<T>& s, int64_t row) {
  const int64_t chunks = (s.side.k + kMeasured - 1) / kMeasured;
  Norms all{0, 0};
  for (int64_t i = 0; i < chunks; ++i) {
    const Norms chunk = s.norms[row * chunks + i];
    all.squares += chunk.squares, all.magnitudes += chunk.magnitudes;
  }
  return all;
}

__device__ __forceinline__ Scale scale_of(const Norms& norms, int64_t k, double norm_squared) {
  if (norms.magnitudes == 0) return {0, 0, {}};  // not by the squares, which may underflow to 0
  if (!(norms.squares >= kLeastSquare && norms.squares <= kMostSquare))
    return {0, __longlong_as_double(0x7ff8000000000000ll), {}};
  const double ratio = norm_squared / norms.squares;
  const int exponent = (int(high_word(ratio) >> 20) - 1023) >> 1;
  Scale scale{power_of_two(exponent), power_of_two(-exponent), {}};
  const double root_mean_square = sqrt(norms.squares / double(k)) * scale.scale;
  FASTGEMM_UNROLL
  for (int i = 0; i < kThresholds; ++i)
    scale.threshold[i] = high_word(root_mean_square * double(threshold(i))) + 1;
  return scale;
}

// One block for each group of rows: of A, then of B. A group is useful unless one of its rows is certain to
// fail. The lower bound of selection.cuh is at most a product of two ratios, one of a row of A and one of a
// row of B: the mean magnitude over the root mean square. Each is at most 1, so one ratio below the bound is
// enough.
template <class T>
__global__ void __launch_bounds__(kTileN)
    scale_kernel(const __grid_constant__ Sources<T> sources, double norm_squared, float bound) {
  const int groups_a = sources.a.groups();
  const bool in_a = int(blockIdx.x) < groups_a;
  const Source<T>& s = in_a ? sources.a : sources.b;
  const int group = int(blockIdx.x) - (in_a ? 0 : groups_a);
  const int64_t row = int64_t{group} * s.group + int(threadIdx.x);
  bool fails = false;
  if (int(threadIdx.x) < s.group && row < s.side.side) {
    const Norms norms = norms_of(s, row);
    const Scale scale = scale_of(norms, s.side.k, norm_squared);
    s.scales[row] = scale;
    const double least = double(bound) * sqrt(norms.squares * double(s.side.k));
    fails = scale.unscale != scale.unscale || norms.magnitudes < least;
  }
  const bool any = any_of_block<kTileN>(fails);
  if (threadIdx.x == 0) s.useful[group] = any ? 0 : 1;
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
