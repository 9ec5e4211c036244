// The products of packed_mma: a warp's kFragments blocks of 16 rows of the weight, converted in registers,
// times the BM rows of x of a stage. Contract: clear(), multiply() for each stage, finish(); then sum() has
// the results in the layout of mma, rows of the weight down and rows of x across.
#pragma once

#include "cuda/gemm/packed/mma_scales.cuh"
#include "cuda/gemm/parts/warp_product.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S, class T>
class MmaProducts {
  static constexpr int kTiles = S::kTiles;
  static constexpr bool kSums = S::kScalesOn == ScalesOn::sums;

 public:
  using Sums = float[S::kFragments][kTiles][4];

  __device__ __forceinline__ MmaProducts(const MmaArguments<T>& g, typename S::Shared& shared)
      : g_(g), scales_(g, shared.of_warp[warp_index()].numbers), x_(0), warp_(warp_index()) {}

  __device__ __forceinline__ Sums& sum() {
    if constexpr (kSums)
      return scaled_;
    else
      return sum_;
  }

  // Begins the tile whose first row of the weight is `column`.
  __device__ __forceinline__ void clear(int column) {
    column_ = column;
    zero(sum_);
    if constexpr (kSums) zero(scaled_);
    if (scales_.by_rows()) scales_.begin_rows(first_row());
  }

  // Adds the products of a stage, `step` being its index in the tile.
  __device__ __forceinline__ void multiply(const unsigned char* stage, int step) {
    const int k = (step * S::kGroups + warp_ / S::kGroupWarps) * S::kColumns;
    if (first_row() >= g_.n || k >= g_.k) return;  // no codes were copied
    const unsigned char* const codes =
        stage + warp_ * S::kFragments * S::kPieces * S::kPieceBytes + fresh_lane() * 16;
    const unsigned char* const x = stage + S::kCodeBytes + S::kScaleBytes +
                                   warp_ / S::kGroupWarps * (S::kColumns / 64) * S::template X<T>::kBytes;
    if (!scales_.by_rows())
      scales_.convert(stage + S::kCodeBytes + warp_ * S::kFragments * kSliceBytes, k % packed::kColumns);
    FASTGEMM_NO_UNROLL
    for (int piece = 0; piece < S::kPieces; ++piece) {
      Unit words[S::kFragments];
      FASTGEMM_UNROLL
      for (int f = 0; f < S::kFragments; ++f)
        words[f] = load_vector<Unit>(codes + (f * S::kPieces + piece) * S::kPieceBytes);
      FASTGEMM_UNROLL
      for (int i = 0; i < kReadSteps<S::kCode>; ++i) {
        const int at = piece * kReadSteps<S::kCode> + i, in_group = at & g_.slices.last_step;
        if (!scales_.by_rows() && in_group == 0) scales_.read(at >> g_.slices.steps_log);
        uint32_t a[S::kFragments][4];
        FASTGEMM_UNROLL
        for (int f = 0; f < S::kFragments; ++f) {
          decode_step<T, S::kCode>(a[f], &words[f].v[i * kStepWords<S::kCode>]);
          scales_.adjust(a[f], f);
        }
        multiply_step(a, x + at / 4 * S::template X<T>::kBytes, at % 4);
        if (kSums && in_group == g_.slices.last_step) add_scaled();
      }
    }
  }

  // Multiplies by what serves whole rows or all of the weight.
  __device__ __forceinline__ void finish() {
    if (kSums && scales_.by_rows()) add_scaled();
    const float global = g_.b.weight.global ? *g_.b.weight.global : 1.0f;
    const bool by_rows = !kSums && scales_.by_rows() && g_.b.weight.zero != Zero::added;
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kFragments * kTiles * 4; ++i)
      sum()[i / 4 / kTiles][i / 4 % kTiles][i % 4] *=
          (by_rows ? scales_.of(i / 4 / kTiles, i % 4) : 1.0f) * global;
  }

 private:
  // The first row of the weight that the warp has.
  __device__ __forceinline__ int first_row() const { return column_ + warp_ % S::kGroupWarps * S::kRows; }

  __device__ __forceinline__ static void zero(Sums& sums) {
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kFragments * kTiles * 4; ++i) sums[i / 4 / kTiles][i / 4 % kTiles][i % 4] = 0;
  }

  __device__ __forceinline__ void multiply_step(const uint32_t (&a)[S::kFragments][4], const unsigned char* x,
                                                int step) {
    FASTGEMM_UNROLL
    for (int j = 0; j < kTiles; j += 2) {
      uint32_t b[4];
      x_.load(b, x, j / 2, step);
      FASTGEMM_UNROLL
      for (int f = 0; f < S::kFragments; ++f) {
        mma<T>(sum_[f][j], a[f], b[0], b[1]);
        mma<T>(sum_[f][j + 1], a[f], b[2], b[3]);
      }
    }
  }

  // Adds the sums of a group, times its scales, and begins the next one.
  __device__ __forceinline__ void add_scaled() {
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kFragments * kTiles * 4; ++i) {
      const int f = i / 4 / kTiles, j = i / 4 % kTiles, r = i % 4;
      scaled_[f][j][r] = multiply_add(sum_[f][j][r], scales_.of(f, r), scaled_[f][j][r]);
    }
    zero(sum_);
  }

  const MmaArguments<T>& g_;
  MmaScales<S, T> scales_;
  FragmentReader<Which::b, typename S::template X<T>> x_;
  int warp_, column_ = 0;  // the first row of the weight in the tile
  Sums sum_, scaled_;      // scaled_: with ScalesOn::sums
};

}  // namespace fastgemm::FASTGEMM_TARGET
