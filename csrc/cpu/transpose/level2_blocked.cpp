// Level 2: cache blocking. The matrix is divided into square blocks. They are so small that all lines of a
// block, read and written, stay cached until every element in them was used. So each line is transferred
// once. One problem remains (level 3): if rows are a power of two apart, the lines of a block are in one or
// two cache sets and evict each other, although the cache is nearly empty.
#include <algorithm>

#include "cpu/transpose/block.h"

namespace fastgemm {
namespace {

template <int Size>
void blocked(const Block& b) {
  using T = Element<Size>;
  constexpr int64_t kBlock = kLine / Size < 16 ? 16 : kLine / Size;  // rows and columns of a block
  for (int64_t i0 = b.row_begin; i0 < b.row_end; i0 += kBlock) {
    const int64_t i1 = std::min(i0 + kBlock, b.row_end);
    for (int64_t j0 = 0; j0 < b.cols; j0 += kBlock) {
      const int64_t j1 = std::min(j0 + kBlock, b.cols);
      for (int64_t i = i0; i < i1; ++i) {
        const T* row = reinterpret_cast<const T*>(b.src + i * b.src_stride);
        for (int64_t j = j0; j < j1; ++j) reinterpret_cast<T*>(b.dst + j * b.dst_stride)[i] = row[j];
      }
    }
  }
}

}  // namespace

void blocked_block(int element_size, const Block& b) { FASTGEMM_DISPATCH_SIZE(element_size, blocked, b) }

}  // namespace fastgemm
