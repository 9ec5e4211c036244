// The products of packed_mma: a warp's kFragments blocks of 16 rows of the weight, converted in registers,
// times the BM rows of x of a stage. Contract: clear(), multiply() for each stage, finish(); then sum() has
// the results in the layout of mma, rows of the weight down and rows of x across.
#pragma once

#include "cuda/gemm/packed/mma_shape.cuh"
#include "cuda/gemm/packed/scales.cuh"
#include "cuda/gemm/parts/warp_product.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S, class T>
class MmaProducts {
  static constexpr int kTiles = S::kTiles;
  static constexpr bool kSums = S::kScaling == Scaling::sums;
  static constexpr bool kIntegers = S::kCode == Code::int4 || S::kCode == Code::int8;
  static constexpr bool kZeros = kIntegers || !kSums;

 public:
  using Sums = float[S::kFragments][kTiles][4];

  __device__ __forceinline__ MmaProducts(const MmaArguments<T>& g, typename S::Shared& shared)
      : g_(g), numbers_(shared.of_warp[warp_index()].numbers), x_(0), warp_(warp_index()) {}

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
    if (g_.slices.groups > 0) return;
    read_by_rows();
  }

  // Adds the products of a stage, `step` being its index in the tile.
  __device__ __forceinline__ void multiply(const unsigned char* stage, int step) {
    const int k = (step * S::kGroups + warp_ / S::kGroupWarps) * S::kColumns;
    if (first_row() >= g_.n || k >= g_.k) return;  // no codes were copied
    const unsigned char* const codes =
        stage + warp_ * S::kFragments * S::kPieces * S::kPieceBytes + fresh_lane() * 16;
    const unsigned char* const slices = stage + S::kCodeBytes + warp_ * S::kFragments * kSliceBytes;
    const unsigned char* const x = stage + S::kCodeBytes + S::kScaleBytes +
                                   warp_ / S::kGroupWarps * (S::kColumns / 64) * S::template X<T>::kBytes;
    if (g_.slices.groups > 0) convert(slices, g_.slices.first_group(k % packed::kColumns));
    FASTGEMM_NO_UNROLL
    for (int piece = 0; piece < S::kPieces; ++piece) {
      Unit words[S::kFragments];
      FASTGEMM_UNROLL
      for (int f = 0; f < S::kFragments; ++f)
        words[f] = load_vector<Unit>(codes + (f * S::kPieces + piece) * S::kPieceBytes);
      FASTGEMM_UNROLL
      for (int i = 0; i < kReadSteps<S::kCode>; ++i) {
        const int at = piece * kReadSteps<S::kCode> + i;
        if (g_.slices.groups > 0 && (at & g_.slices.last_step) == 0) read_scales(at >> g_.slices.steps_log);
        uint32_t a[S::kFragments][4];
        FASTGEMM_UNROLL
        for (int f = 0; f < S::kFragments; ++f) {
          decode_step<T, S::kCode>(a[f], &words[f][i * kStepWords<S::kCode>]);
          adjust(a[f], f);
        }
        multiply_step(a, x + at / 4 * S::template X<T>::kBytes, at % 4);
        if constexpr (kSums) {
          if ((at & g_.slices.last_step) == g_.slices.last_step) add_scaled();
        }
      }
    }
  }

  // Multiplies by what serves whole rows or all of the weight.
  __device__ __forceinline__ void finish() {
    if constexpr (kSums) {
      if (g_.slices.groups == 0) add_scaled();
    }
    const float global = g_.b.weight.global ? *g_.b.weight.global : 1.0f;
    const bool rows = !kSums && g_.slices.groups == 0 && g_.b.weight.zero != Zero::added;
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        FASTGEMM_UNROLL
        for (int r = 0; r < 4; ++r)
          sum()[f][j][r] *= (rows ? r < 2 ? scale_[f][0] : scale_[f][1] : 1.0f) * global;
      }
    }
  }

 private:
  // The first row of the weight that the warp has.
  __device__ __forceinline__ int first_row() const { return column_ + warp_ % S::kGroupWarps * S::kRows; }
  __device__ __forceinline__ static void zero(Sums& sums) {
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kFragments * kTiles * 4; ++i) (&sums[0][0][0])[i] = 0;
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
    for (int f = 0; f < S::kFragments; ++f) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        FASTGEMM_UNROLL
        for (int r = 0; r < 4; ++r)
          scaled_[f][j][r] =
              multiply_add(sum_[f][j][r], r < 2 ? scale_[f][0] : scale_[f][1], scaled_[f][j][r]);
      }
    }
    zero(sum_);
  }

  // The scales of a stage.
  __device__ __forceinline__ void convert(const unsigned char* slices, int first_group) {
    const ScaleSlices& s = g_.slices;
    const PackedWeight& w = g_.b.weight;
    FASTGEMM_NO_UNROLL
    for (int f = 0; f < S::kFragments; ++f, slices += kSliceBytes) {
      convert_scales(numbers_.scale[0][f][0], w, slices, s.groups, s.by_unit, first_group);
      if (kZeros && w.zero != Zero::none)
        convert_zeros(numbers_.scale[1][f][0], w, slices + s.scale_pieces * 16, s.groups, s.by_unit,
                      first_group);
    }
    __syncwarp();
  }
  // Those of whole rows, for a tile.
  __device__ __forceinline__ void read_by_rows() {
    const PackedWeight& w = g_.b.weight;
    __syncwarp();  // the rows before have been stored from this memory
    const int lane = fresh_lane(), r = lane % 16 / 2 + lane % 2 * 8;
    FASTGEMM_NO_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      const int row = first_row() + 16 * f + r;
      if (lane >= 16) continue;
      numbers_.scale[0][f][0][lane] = row < g_.n ? static_cast<const float*>(w.scales)[row] : 0.0f;
      if (kZeros) numbers_.scale[1][f][0][lane] = row < g_.n ? packed::zero_at(w, w.zeros, row) : 0.0f;
    }
    __syncwarp();
    read_scales(0);
  }

  // The scales and zeros of the thread's rows.
  __device__ __forceinline__ void read_scales(int group) {
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      scale_[f] = load_vector<Vector<float, 2>>(&numbers_.scale[0][f][group][fresh_lane() / 4 * 2]);
      if constexpr (kZeros) {
        if (g_.b.weight.zero != Zero::none)
          zero_[f] = load_vector<Vector<float, 2>>(&numbers_.scale[1][f][group][fresh_lane() / 4 * 2]);
      }
    }
  }

  // Zeros and, with Scaling::fragments, scales of a converted fragment.
  __device__ __forceinline__ void adjust(uint32_t (&a)[4], int f) const {
    const PackedWeight& w = g_.b.weight;
    if constexpr (kIntegers) {
      if (w.zero == Zero::subtracted)
        subtract_zeros<T>(a, {pair_of<T>(zero_[f][0]), pair_of<T>(zero_[f][1])});
    }
    if constexpr (!kSums) {
      const bool added = w.zero == Zero::added;
      if (g_.slices.groups == 0 && !added) return;  // finish() multiplies
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) {
        const float scale = scale_[f][p % 2];
        const float zero = added ? zero_[f][p % 2] : 0.0f;
        if (!fits_in<T>(w.scale))
          a[p] = round_pair<T>(multiply_add(low_of<T>(a[p]), scale, zero),
                               multiply_add(high_of<T>(a[p]), scale, zero));
        else if (added)
          a[p] = multiply_add_pairs<T>(a[p], pair_of<T>(scale), pair_of<T>(zero));
        else
          a[p] = multiply_pairs<T>(a[p], pair_of<T>(scale));
      }
    }
  }

  const MmaArguments<T>& g_;
  typename S::Numbers& numbers_;
  FragmentReader<Which::b, typename S::template X<T>> x_;
  int warp_, column_ = 0;                                        // the first row of the weight in the tile
  Vector<float, 2> scale_[S::kFragments], zero_[S::kFragments];  // of rows r and r + 8
  Sums sum_, scaled_;                                            // scaled_: with Scaling::sums
};

}  // namespace fastgemm::FASTGEMM_TARGET
