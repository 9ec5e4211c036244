// What the checks of all ops share (check.cpp, check_gemm.cpp).
#pragma once

#include "check.h"
#include "support.h"

namespace fastgemm::test {

void check_gemm_row(const Kernel&, DType, std::mt19937& random);

inline std::string text(std::initializer_list<int64_t> numbers) {
  std::string s;
  for (const int64_t n : numbers) {
    if (!s.empty()) s += ' ';
    s += std::to_string(n);
  }
  return s;
}

// Describes a layout: column-major, gap, offset.
inline std::string text(const Layout& l) {
  return std::string(l.column_major ? " col +" : " row +") + std::to_string(l.gap) + " @" +
         std::to_string(l.offset) + (l.at_end ? " at the end" : "");
}

inline double unit_roundoff(DType t) {
  return t == DType::f64 ? 0x1p-53 : t == DType::f32 ? 0x1p-24 : t == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// Whether two integers are equal modulo the range of a type.
inline bool same_in(DType type, uint64_t x, uint64_t y) {
  const int bits = 8 * element_size(type);
  return (x ^ y) << (64 - bits) == 0;
}

// Calls `check` for every size with some of the layouts. Each size begins with another layout, so every
// layout is tested with several sizes. CUDA kernels get one layout per size, because tests/simt runs them
// with all layouts, and this test is about arithmetic.
template <class Sizes, class Check>
void with_some_layouts(const Kernel& kernel, const Sizes& sizes, int layouts, const Check& check) {
  const int step = kernel.device == Device::cpu ? 3 : layouts;
  int begin = 0;
  for (const auto& size : sizes) {
    for (int layout = begin; layout < layouts; layout += step) check(size, layout);
    begin = (begin + 1) % step;
  }
}

}  // namespace fastgemm::test
