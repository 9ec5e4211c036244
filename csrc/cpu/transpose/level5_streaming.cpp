// Level 5: whole lines of dst are written with non-temporal stores, on all cores. An ordinary store first
// reads the line that it will overwrite, which is a third of level 4's traffic, and evicts input that is
// still needed. The lines of a tile are complete only when all of its rows are, so tiles go through a buffer
// (streaming.h). Small problems, whose result fits in the cache, use level 4's ordinary stores (table.cpp).
#include "cpu/transpose/streaming.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <int Size>
void streaming(const Block& b) {
  const auto fill = [&](const char* src, int64_t row, int64_t rows, int64_t cols, char* tile) {
    transpose_tile<Size>(src + row * b.src_stride, b.src_stride, tile, kPitch, rows, cols);
  };
  stream_block<Size, false>(b, fill);
}

}  // namespace

void streaming_block(int element_size, const Block& b) { FASTGEMM_DISPATCH_SIZE(element_size, streaming, b) }

}  // namespace fastgemm::FASTGEMM_ISA
