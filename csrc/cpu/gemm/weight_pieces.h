// Where the engines read B. A matrix is packed as it lies in memory. A packed weight (core/packed_weight.h)
// becomes numbers first, a piece at a time in the L1 cache, and these are packed as a matrix. So a
// kernel needs nothing of its own for packed weights.
#pragma once

#include "cpu/gemm/packed_block.h"
#include "cpu/gemm/simd.h"

namespace fastgemm::FASTGEMM_ISA {

// The types of products with packed weights; other types have no DType here.
template <class T>
inline constexpr DType kWeightType = DType::bits8;
template <>
inline constexpr DType kWeightType<float> = DType::f32;
template <>
inline constexpr DType kWeightType<Half> = DType::f16;
template <>
inline constexpr DType kWeightType<BFloat16> = DType::bf16;
template <class T>
inline constexpr bool kTakesWeights = kWeightType<T> != DType::bits8;

// Calls pack(rows, b, column_stride, k_stride) for rows [begin, end) of k of B, piece by piece. A piece has
// up to COLUMNS columns from j on. Product is a problem as in engine.h.
template <int64_t COLUMNS, class Product, class Pack>
FASTGEMM_INLINE void with_pieces(const Product& p, int64_t j, int64_t begin, int64_t end, Pack&& pack) {
  using Element = typename Product::Element;
  if constexpr (kTakesWeights<Element>) {
    if (p.packed) {
      // 256 numbers and the gap, so that columns do not share the sets of the L1 cache.
      constexpr int64_t kDepth = 256, kPitch = kDepth + 64 / int64_t{sizeof(Element)};
      alignas(64) Element numbers[COLUMNS * kPitch];
      for (int64_t at = begin; at < end; at += kDepth) {
        const int64_t depth = min(kDepth, end - at);
        dequantize(
            {p.packed, p.b, p.k, j, min(COLUMNS, p.n - j), at, depth, kWeightType<Element>, numbers, kPitch});
        pack(at, depth, static_cast<const Element*>(numbers), kPitch, int64_t{1});
      }
      return;
    }
  }
  pack(begin, end - begin, p.b + begin * p.b_rs + j * p.b_cs, p.b_cs, p.b_rs);
}

}  // namespace fastgemm::FASTGEMM_ISA
