// What the transpose rungs have in common: elements as plain bytes, and the part of a problem that one call
// handles.
#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// To move an element only its width is needed, not its type. Its alignment is 1, because a view may start at
// any byte.
template <int Size>
struct Element {
  unsigned char byte[Size];
};

// Rows [row_begin, row_end) of `cols` columns of one matrix. src and dst point at row 0 of the first of these
// columns; strides are bytes between rows of src and between rows of dst (= columns of src). `rows` is the
// height of the whole matrix. Kernels that write whole cache lines need it: if a piece ends inside a line,
// the piece below writes this line, and therefore begins above its own row_begin.
struct Block {
  const char* src;
  char* dst;
  int64_t src_stride, dst_stride;
  int64_t rows, row_begin, row_end, cols;
};
using BlockKernel = void (*)(int element_size, const Block&);

inline constexpr int kLine = 64;  // bytes of a cache line

// Level 4 goes down strips of columns, which are kStripBytes of a src row wide. Memory needs contiguous runs:
// one Zen 3 core reads runs of 64, 128 and 256 bytes from different rows at 4, 7 and 14 GB/s. Large matrices
// are cut into tasks at multiples of kCutBytes of a row of src and of dst, which are whole tiles
// (streaming.h).
inline constexpr int64_t kStripBytes = 256, kCutBytes = 512;

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
