// Level 4: tiles are transposed in SIMD registers (simd.h). It reads 16 bytes and writes up to 64 bytes at a
// time, where level 3 moves one element. With AVX-512 every store is a whole line of dst, so power-of-two
// strides cause no evictions, and the buffer of level 3 is not needed.
#include "cpu/transpose/simd.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <int Size>
void simd(const Block& b) {
  constexpr int64_t kCols = kStripBytes / Size;
  for (int64_t j = 0; j < b.cols; j += kCols) {
    const int64_t cols = b.cols - j < kCols ? b.cols - j : kCols;
    transpose_tile<Size>(b.src + b.row_begin * b.src_stride + j * Size, b.src_stride,
                         b.dst + b.row_begin * Size + j * b.dst_stride, b.dst_stride, b.row_end - b.row_begin,
                         cols);
  }
}

}  // namespace

void simd_block(int element_size, const Block& b) { FASTGEMM_DISPATCH_SIZE(element_size, simd, b) }

}  // namespace fastgemm::FASTGEMM_ISA
