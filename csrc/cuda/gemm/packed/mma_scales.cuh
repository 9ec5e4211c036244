// Scales and zeros in packed_mma. Contract: convert() for each stage (or begin_rows() for each tile, where
// one scale serves a whole row) makes float32 of them in shared memory of the warp; read() gives a thread
// those of a group for its rows r and r + 8; adjust() applies them to a converted fragment, and of() to
// float32 sums.
//
// Lanes convert different numbers: in fragments 4 lanes share the rows, and each of them would convert the
// same.
#pragma once

#include "cuda/gemm/packed/mma_shape.cuh"
#include "cuda/gemm/packed/unit_scales.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Whether scales of this type are numbers of T, so that code * scale in T is rounded once.
template <class T>
__device__ __forceinline__ bool fits_in(ScaleType type) {
  return type == ScaleType::e4m3 || type == (std::is_same_v<T, Half> ? ScaleType::f16 : ScaleType::bf16) ||
         (type == ScaleType::e8m0 && std::is_same_v<T, BFloat16>);
}

template <class S, class T>
class MmaScales {
  static constexpr bool kSums = S::kScalesOn == ScalesOn::sums;
  static constexpr bool kIntegers = S::kCode == Code::int4 || S::kCode == Code::int8;
  static constexpr bool kZeros = kIntegers || !kSums;

 public:
  __device__ __forceinline__ MmaScales(const MmaArguments<T>& g, typename S::Numbers& numbers)
      : g_(g), numbers_(numbers) {}

  __device__ __forceinline__ bool by_rows() const { return g_.slices.groups == 0; }
  // Of row r (r < 2) or r + 8 of an accumulator's four.
  __device__ __forceinline__ float of(int f, int r) const { return scale_[f][r / 2]; }

  // Those of a stage that begins at this column of a unit. `slice` is the first of the warp's.
  __device__ __forceinline__ void convert(const unsigned char* slice, int column) {
    const ScaleSlices& s = g_.slices;
    const PackedWeight& w = g_.b.weight;
    const int first = s.by_unit ? s.first_group(column) : 0;
    FASTGEMM_NO_UNROLL
    for (int f = 0; f < S::kFragments; ++f, slice += kSliceBytes) {
      FASTGEMM_NO_UNROLL
      for (int i = fresh_lane(); i < s.groups * 16; i += 32) {
        const int index = s.by_unit ? first + i / 16 : i;
        const unsigned char* const zeros = slice + s.scale_pieces * 16;
        numbers_.scale[f][0][i] = read_scale(w.scale, slice, index);
        if (kZeros && w.zero != Zero::none)
          numbers_.zero[f][0][i] =
              w.zero == Zero::subtracted ? float(int8_t(zeros[index])) : read_scale(w.scale, zeros, index);
      }
    }
    __syncwarp();
  }

  // Those of whole rows, from `first_row` of the weight on.
  __device__ __forceinline__ void begin_rows(int first_row) {
    __syncwarp();  // the rows before have been stored from this memory
    const int lane = fresh_lane(), r = lane % 16 / 2 + lane % 2 * 8;
    FASTGEMM_NO_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      const int row = first_row + 16 * f + r;
      if (lane >= 16) continue;
      const bool inside = row < g_.n;
      numbers_.scale[f][0][lane] = inside ? static_cast<const float*>(g_.b.weight.scales)[row] : 0.0f;
      if (kZeros) numbers_.zero[f][0][lane] = inside ? row_zero(g_.b.weight, row) : 0.0f;
    }
    __syncwarp();
    read(0);
  }

  __device__ __forceinline__ void read(int group) {
    const int place = fresh_lane() / 4 * 2;
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      scale_[f] = load_vector<Vector<float, 2>>(&numbers_.scale[f][group][place]);
      if (kZeros && g_.b.weight.zero != Zero::none)
        zero_[f] = load_vector<Vector<float, 2>>(&numbers_.zero[f][group][place]);
    }
  }

  // Zeros and, with ScalesOn::fragments, scales.
  __device__ __forceinline__ void adjust(uint32_t (&a)[4], int f) const {
    const PackedWeight& w = g_.b.weight;
    if constexpr (kIntegers) {
      if (w.zero == Zero::subtracted)
        subtract_zeros<T>(a, {pair_of<T>(zero_[f][0]), pair_of<T>(zero_[f][1])});
    }
    if constexpr (!kSums) {
      const bool added = w.zero == Zero::added;
      if (by_rows() && !added) return;  // the sums are multiplied
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) {
        const float scale = scale_[f][p % 2], zero = added ? zero_[f][p % 2] : 0.0f;
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

 private:
  const MmaArguments<T>& g_;
  typename S::Numbers& numbers_;
  Vector<float, 2> scale_[S::kFragments], zero_[S::kFragments];  // of rows r and r + 8
};

}  // namespace fastgemm::FASTGEMM_TARGET
