// What a product must know of a weight of 4 or 8 bits. packed_weight.h has the numbers that codes stand for,
// and the two orders in memory.
#pragma once

#include <cstdint>

#include "core/epilogue.h"

namespace fastgemm {

// int4: the value + 8. nf4: an index into the 16 numbers of NormalFloat (QLoRA, appendix E). e2m1 and e4m3:
// floating-point numbers of OCP's formats; e4m3 has no infinity. int8: the value.
enum class Code : uint8_t { none, int4, nf4, e2m1, int8, e4m3 };
inline constexpr int kCodes = 6;
// e8m0 is a power of two: 2^(byte - 127), 255 is NaN.
enum class ScaleType : uint8_t { none, f32, bf16, f16, e8m0, e4m3 };
enum class Zero : uint8_t { none, subtracted, added };

FASTGEMM_ANYWHERE constexpr int bits_of(Code c) { return c == Code::int8 || c == Code::e4m3 ? 8 : 4; }
FASTGEMM_ANYWHERE constexpr int size_of(ScaleType t) {
  return t == ScaleType::f32                            ? 4
         : t == ScaleType::bf16 || t == ScaleType::f16  ? 2
         : t == ScaleType::e8m0 || t == ScaleType::e4m3 ? 1
                                                        : 0;
}
// Sets of codes, for the rows of the table.
using CodeSet = uint8_t;
template <class... C>
constexpr CodeSet codes(C... c) {
  return CodeSet((CodeSet{0} | ... | CodeSet(1u << static_cast<int>(c))));
}
inline constexpr CodeSet kNoCode = codes(Code::none);
inline constexpr CodeSet kAllCodes = codes(Code::int4, Code::nf4, Code::e2m1, Code::int8, Code::e4m3);

// What a product must know of a packed b, beside its codes (GemmProblem::b) and sizes.
struct PackedWeight {
  Code code = Code::none;  // none: b is a matrix of the type of the product
  ScaleType scale = ScaleType::none;
  Zero zero = Zero::none;
  bool units = false;  // the order of a GPU
  int64_t group_n = 0, group_k = 0;
  const void *scales = nullptr, *zeros = nullptr;
  const float* global = nullptr;  // one number; null: 1

  FASTGEMM_ANYWHERE constexpr bool is_given() const { return code != Code::none; }
  // Whether one scale serves a whole row.
  FASTGEMM_ANYWHERE constexpr bool by_rows(int64_t k) const { return group_k >= k; }
};

}  // namespace fastgemm
