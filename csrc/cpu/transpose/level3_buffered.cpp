// Level 3: blocks go through a small buffer. Its rows are one element longer than the block. So the writes of
// a column are distributed over all cache sets, whatever the distance between rows of dst. Then each row of
// the buffer is copied to dst in one sequential run. This avoids the conflicts of power-of-two strides, by
// which the lines of level 2's blocks evict each other, and allows larger blocks.
#include <algorithm>
#include <cstring>

#include "cpu/transpose/block.h"

namespace fastgemm {
namespace {

template <int Size>
void buffered(const Block& b) {
  using T = Element<Size>;
  constexpr int64_t kBlock = kLine / Size < 32 ? 32 : kLine / Size;  // rows and columns of a block
  T tile[kBlock][kBlock + 1];                                        // (column of src, row of src)
  for (int64_t j0 = 0; j0 < b.cols; j0 += kBlock) {
    const int64_t cols = std::min(kBlock, b.cols - j0);
    for (int64_t i0 = b.row_begin; i0 < b.row_end; i0 += kBlock) {
      const int64_t rows = std::min(kBlock, b.row_end - i0);
      for (int64_t i = 0; i < rows; ++i) {
        const T* row = reinterpret_cast<const T*>(b.src + (i0 + i) * b.src_stride) + j0;
        for (int64_t j = 0; j < cols; ++j) tile[j][i] = row[j];
      }
      for (int64_t j = 0; j < cols; ++j)
        std::memcpy(b.dst + (j0 + j) * b.dst_stride + i0 * Size, tile[j], rows * Size);
    }
  }
}

}  // namespace

void buffered_block(int element_size, const Block& b) { FASTGEMM_DISPATCH_SIZE(element_size, buffered, b) }

}  // namespace fastgemm
