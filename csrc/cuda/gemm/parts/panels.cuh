// Panels: the form of both operands that the main loops of level 5 read. And Output: where their sums go.
//
//   A (m, k) | a b |  ->  panel | a c e |        B (k, n) | a b c |  ->  panel | a b c |
//            | c d |            | b d f |                 | d e f |            | d e f |
//            | e f |
//
// The elements that a thread needs for one k, of neighbouring rows of A or columns of B, are neighbours in a
// panel, and one 16-byte load fetches them. Every panel has this layout, begins its rows at multiples of 16
// bytes, and has elements of 4 or 8 bytes. So the main loop has no cases for other layouts, alignments and
// types. make_panels() takes an operand in place if it is such a panel already, and packs it otherwise.
#pragma once

#include <span>

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A panel's element, a word, has the type of the sums: float for 16-bit types, uint32_t for integers of up to
// 32 bits. Only int8 is packed: a word has four of consecutive k, because the instruction dp4a multiplies
// four pairs of bytes and adds the products (dot4() in device/numeric.cuh).
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

// Where the sums go: a Result whose element type is known only at run time. So one main loop, compiled for
// float words, serves float, Half and BFloat16, and another serves all integers of up to 32 bits.
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
