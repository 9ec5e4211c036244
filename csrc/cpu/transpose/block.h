// What the transpose rungs share: elements as plain bytes, and the piece of a problem one call works on.
#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// Moving needs an element's width, not its type. Alignment 1, because a view may start at any byte.
template <int Size>
struct Element {
  unsigned char byte[Size];
};

// Rows [row_begin, row_end) of `cols` columns of one matrix. src and dst point at row 0 of the first of
// these columns; strides are bytes between rows of src and between rows of dst (= columns of src).
// `rows` is the height of the whole matrix. A kernel that writes whole cache lines needs it: where its piece
// ends inside a line, it may leave this line to the piece below, which then begins above its own row_begin.
struct Block {
  const char* src;
  char* dst;
  int64_t src_stride, dst_stride;
  int64_t rows, row_begin, row_end, cols;
};
using BlockKernel = void (*)(int element_size, const Block&);

inline constexpr int kLine = 64;  // bytes of a cache line

// Kernels from level 4 up walk down strips of columns, kStripBytes of a src row wide, and levels 5 and 6
// cut a strip into tiles of kTileRowBytes of a dst row. Memory wants runs of this length on both sides: one
// Zen 3 core reads runs of 64, 128 and 256 bytes, a row apart, at 4, 7 and 14 GB/s, and its stores past the
// cache take runs of 64 bytes at a third of the rate of 256. Longer ones bring no more, and a tile of
// 256 x 256 bytes, its buffer and the tile to come share a 512 KiB L2.
inline constexpr int64_t kStripBytes = 256, kTileRowBytes = 256;

// Runs the kernel on the whole problem: on one thread, or split over the context's threads.
void run_serial(const TransposeProblem&, BlockKernel);
void run_parallel(const TransposeProblem&, Context&, BlockKernel);

// Levels 1 to 3: plain C++.
void naive_block(int element_size, const Block&);
void naive_strided_read_block(int element_size, const Block&);
void blocked_block(int element_size, const Block&);
void buffered_block(int element_size, const Block&);

// Levels 4 to 6: compiled once per instruction set.
#define FASTGEMM_DECLARE_BLOCK_KERNELS(isa)             \
  namespace isa {                                       \
  void simd_block(int element_size, const Block&);      \
  void streaming_block(int element_size, const Block&); \
  void pipelined_block(int element_size, const Block&); \
  }
FASTGEMM_DECLARE_BLOCK_KERNELS(baseline)
FASTGEMM_DECLARE_BLOCK_KERNELS(avx2)
FASTGEMM_DECLARE_BLOCK_KERNELS(avx512)
#undef FASTGEMM_DECLARE_BLOCK_KERNELS

}  // namespace fastgemm

// Calls kernel<Size>(block) for the run-time element size.
#define FASTGEMM_DISPATCH_SIZE(element_size, kernel, block) \
  switch (element_size) {                                   \
    case 1:                                                 \
      return kernel<1>(block);                              \
    case 2:                                                 \
      return kernel<2>(block);                              \
    case 4:                                                 \
      return kernel<4>(block);                              \
    case 8:                                                 \
      return kernel<8>(block);                              \
    default:                                                \
      return kernel<16>(block);                             \
  }
