// Level 1: two loops. The inner one goes along a row of src, so reads are sequential, and each write goes to
// another row of dst. A 64-byte line is fetched and written back for each element: if a column of dst rows is
// larger than the cache, no line stays there until its next element is written. The companion
// naive_strided_read exchanges the loops: sequential writes, strided reads.
#include "cpu/transpose/block.h"

namespace fastgemm {
namespace {

template <int Size>
void naive(const Block& b) {
  using T = Element<Size>;
  for (int64_t i = b.row_begin; i < b.row_end; ++i) {
    const T* row = reinterpret_cast<const T*>(b.src + i * b.src_stride);
    for (int64_t j = 0; j < b.cols; ++j) reinterpret_cast<T*>(b.dst + j * b.dst_stride)[i] = row[j];
  }
}

template <int Size>
void naive_strided_read(const Block& b) {
  using T = Element<Size>;
  for (int64_t j = 0; j < b.cols; ++j) {
    T* row = reinterpret_cast<T*>(b.dst + j * b.dst_stride);
    for (int64_t i = b.row_begin; i < b.row_end; ++i)
      row[i] = reinterpret_cast<const T*>(b.src + i * b.src_stride)[j];
  }
}

}  // namespace

void naive_block(int element_size, const Block& b) { FASTGEMM_DISPATCH_SIZE(element_size, naive, b) }

void naive_strided_read_block(int element_size, const Block& b) {
  FASTGEMM_DISPATCH_SIZE(element_size, naive_strided_read, b)
}

}  // namespace fastgemm
