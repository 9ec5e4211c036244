// The products of packed_mma: a warp's kFragments blocks of 16 rows of the weight, converted in registers,
// times the BM rows of x of a stage. Contract: clear(), multiply() for each stage, finish(); then sum() has
// the results in the layout of mma, rows of the weight down and rows of x across.
#pragma once

#include "cuda/gemm/packed/mma_shape.cuh"
#include "cuda/gemm/parts/warp_product.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class S, class T>
class MmaProducts {
  static constexpr int kTiles = S::kTiles;
  static constexpr bool kSums = S::kScaled == Scaled::sums;

 public:
  using Sums = float[S::kFragments][kTiles][4];

  __device__ __forceinline__ explicit MmaProducts(const MmaArguments<T>& g) : g_(g), x_(0) {
    const unsigned first = threadIdx.x / 32 % S::kGroupWarps * S::kFragments;  // block of 16 rows in the tile
    group_ = int(threadIdx.x / (32 * S::kGroupWarps));
    unit_ = int(first / 4);
    thread_ = first % 4 * 32 + threadIdx.x % 32;
  }

  __device__ __forceinline__ Sums& sum() { return sum_; }

  // Begins the tile whose first row of the weight is `column`.
  __device__ __forceinline__ void clear(int column) {
    column_ = column;
    zero(sum_);
    if constexpr (kSums) zero(apart_);
  }

  // Adds the products of a stage.
  __device__ __forceinline__ void multiply(const unsigned char* stage) {
    const int first = group_ * S::kSteps;  // the first of the warp's steps in a unit
    const unsigned char* const unit = stage + unit_ * S::kUnitBytes;
    const unsigned char* const x = stage + S::kWeightBytes + group_ * S::template X<T>::kBytes;
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSteps; i += S::kBatch) {
      typename Source::Fragments a[S::kFragments];
      FASTGEMM_UNROLL
      for (int f = 0; f < S::kFragments; ++f) {
        const BatchCodes codes(unit, first + i, thread_ + 32 * f);
        Source source = source_of(f);
        source.begin(unit);
        source.convert(a[f], codes, 0, first + i, unit);
      }
      FASTGEMM_UNROLL
      for (int j = 0; j < S::kBatch; ++j) multiply_step(a, j, x, i + j);
    }
    if (kSums && !g_.at_end) add_scaled(unit, first);
  }

  // Multiplies the sums by the scales of whole rows and by the scale of the whole weight.
  __device__ __forceinline__ void finish() {
    const float global = (g_.weight.global ? *g_.weight.global : 1.0f) * g_.of_sums;
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      RowPair by{1, 1};
      if (g_.at_end) by = g_.row_scales(source_of(f).row());
      FASTGEMM_UNROLL
      for (int i = 0; i < kTiles * 4; ++i) {
        float& sum = sum_[f][i / 4][i % 4];
        if (kSums && g_.at_end) sum = apart_[f][i / 4][i % 4];
        sum *= (i % 4 < 2 ? by.first : by.second) * global;
      }
    }
  }

 private:
  using Source = UnitFragments<T, S::kCode, S::kScaled, S::kBatch>;

  // A thread's codes of a batch of steps. The batch begins with step `step` of a unit.
  struct BatchCodes {
    static constexpr int kWords = S::kBatch * kStepWords<S::kCode>, kAtOnce = kWords < 4 ? kWords : 4;
    uint32_t word[kWords];
    __device__ __forceinline__ BatchCodes(const unsigned char* unit, int step, unsigned thread) {
      constexpr int kSteps = kReadSteps<S::kCode>;
      const unsigned char* const from =
          unit + step / kSteps * (128 * 16) + thread * 16 + step % kSteps * (16 / kSteps);
      FASTGEMM_UNROLL
      for (int i = 0; i < kWords; i += kAtOnce) {
        const auto read = load_vector<Vector<uint32_t, kAtOnce>>(from + i / 4 * (128 * 16));
        FASTGEMM_UNROLL
        for (int j = 0; j < kAtOnce; ++j) word[i + j] = read[j];
      }
    }
    __device__ __forceinline__ const uint32_t* words(int k) const { return word + k * kStepWords<S::kCode>; }
  };

  // A unit has the codes of 128 threads. Fragment f has the codes of thread thread_ + 32 * f.
  __device__ __forceinline__ Source source_of(int f) const {
    return {g_, column_ + unit_ * packed::kRows, UnitScales::rows_of(thread_) + 16 * f};
  }

  __device__ __forceinline__ static void zero(Sums& sums) {
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kFragments * kTiles * 4; ++i) sums[i / 4 / kTiles][i / 4 % kTiles][i % 4] = 0;
  }

  // Step j of a batch.
  __device__ __forceinline__ void multiply_step(const typename Source::Fragments (&a)[S::kFragments], int j,
                                                const unsigned char* x, int step) {
    Sums& to = kSums ? apart_ : sum_;
    FASTGEMM_UNROLL
    for (int i = 0; i < kTiles; i += 2) {
      uint32_t b[4];
      x_.load(b, x, i / 2, step);
      FASTGEMM_UNROLL
      for (int f = 0; f < S::kFragments; ++f) {
        mma<T>(to[f][i], a[f][j], b[0], b[1]);
        mma<T>(to[f][i + 1], a[f][j], b[2], b[3]);
      }
    }
  }

  // Multiplies the sums of the step's group by its scales, adds them to the total, and begins the next group.
  __device__ __forceinline__ void add_scaled(const unsigned char* unit, int step) {
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      const RowPair by = source_of(f).scales_of_sums(unit, step);
      FASTGEMM_UNROLL
      for (int i = 0; i < kTiles * 4; ++i) {
        float& sum = sum_[f][i / 4][i % 4];
        sum = multiply_add(apart_[f][i / 4][i % 4], i % 4 < 2 ? by.first : by.second, sum);
      }
    }
    zero(apart_);
  }

  const MmaArguments<T>& g_;
  FragmentReader<Which::b, typename S::template X<T>> x_;
  int group_, unit_;  // the warp's half of a unit, and which of the two units
  unsigned thread_;   // the owner of the codes of the first fragment in its unit
  int column_ = 0;    // the first row of the weight in the tile
  Sums sum_, apart_;  // apart_: those of a group of columns, with Scaled::sums
};

}  // namespace fastgemm::FASTGEMM_TARGET
