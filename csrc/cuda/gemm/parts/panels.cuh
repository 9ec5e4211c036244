// What the main loops of level 5 read, operands as panels, and where their sums go. Row k of a panel holds
// column k of A (or row k of B), so that one 16-byte load fetches neighbouring rows of C, and neither copies
// nor multiply-adds meet a layout, a misaligned address or a narrow type. make_panels() reads operands that
// are panels already (32 or 64-bit elements, 16-byte aligned) in place and packs the others.
#pragma once

#include <span>

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The word that an element of T becomes: what it is summed in; four int8 of consecutive k share one.
template <class T>
using PanelWord = Accumulator<T>;
template <class T>
inline constexpr int kPerWord = std::is_same_v<T, int8_t> ? 4 : 1;

template <class Word>
struct Panel {
  const Word* data;      // 16-byte aligned
  int64_t columns;       // m of A, n of B
  int64_t rows;          // k, in words
  int64_t row_stride;    // in words, a multiple of 16 bytes
  int64_t batch_stride;  // in words, a multiple of 16 bytes; 0 where all matrices of the batch share it
};

template <class Word>
struct Panels {
  Panel<Word> a, b;
};

// Makes panels of both operands (k > 0) and sets `flags` to zero, with at most one launch.
template <class T>
Panels<PanelWord<T>> make_panels(const Gemm<T>&, int batch, std::span<uint32_t> flags, Context&);

// Where sums of words go: a Result whose element type is known at run time, so that one main loop serves
// float, Half and BFloat16 (or the integers of up to 32 bits).
template <class Word>
struct Output {
  using Whole = std::conditional_t<std::is_same_v<Word, uint64_t>, int64_t, Word>;
  using Element = std::conditional_t<std::is_same_v<Word, uint32_t>, int32_t, Whole>;
  Result<Element> result;
  DType stored;

  __device__ __forceinline__ Output at_batch(int64_t index) const {
    const int bytes = stored == DType::f16 || stored == DType::bf16 ? 2 : int(sizeof(Word));
    Output o = *this;
    o.result.out = static_cast<char*>(result.out) + index * result.batch_stride * bytes;
    o.result.c = static_cast<const char*>(result.c) + index * result.c_batch_stride * bytes;
    return o;
  }
  // Calls body.operator()<Out>() with the element type in memory.
  template <class Body>
  __device__ __forceinline__ void with_stored(Body&& body) const {
    if constexpr (std::is_same_v<Word, float>) {
      if (stored == DType::f16) return body.template operator()<Half>();
      if (stored == DType::bf16) return body.template operator()<BFloat16>();
    }
    body.template operator()<Element>();
  }
};

template <class T>
Output<PanelWord<T>> output_of(const Gemm<T>&);

}  // namespace fastgemm::FASTGEMM_TARGET
