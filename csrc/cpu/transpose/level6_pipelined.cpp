// Level 6: reads overlap with other work. In level 5 they do not, for two reasons. Hardware prefetchers do
// not follow accesses that change to another page with every row. And a transposition in registers reads a
// line in four accesses of 16 bytes. Between them, rows at multiples of 2 KiB (6144 bytes, 4096 floats) evict
// the line from the few L1 sets that they share.
//
// - Each band of rows is copied once to a dense buffer in L1, the stage, row after row, while the next rows
//   are prefetched.
// - While a tile is written with non-temporal stores, the next tile is prefetched into L2, as many bytes as
//   are written. To prefetch all of it before the transposition gains nothing: the processor drops most of
//   these prefetches.
// - A band has the height of one line of dst, so that each line of the tile, which is not in L1, is written
//   once.
//
// On two Zen 3 cores at 8192 x 8192 (4096 x 4096 from 4 bytes on), the share of a copy's bandwidth rises as
// follows. The first number is for strips of 512 bytes, bands of half a line and a prefetch of the whole tile
// at once. 1-byte elements 0.44 -> 0.73, 4-byte 0.62 -> 0.95, 8-byte 0.68 -> 1.0; on one core 0.42 -> 0.68,
// 0.65 -> 0.96, 0.53 -> 0.82. A stage for a whole tile, filled while the tile before is transposed, gained
// nothing.
#include "cpu/transpose/streaming.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <int Size>  // of the widest strip, and a line that avoids set conflicts
constexpr int64_t kStagePitch = kTileStripBytes<Size> + 2 * kLine;
constexpr int64_t kRowsAhead = 8;  // 4 to 32 are as good

// Copies `rows` rows to the stage; src has `left` rows from here on.
template <int Size>
FASTGEMM_INLINE void stage_rows(const char* row, int64_t stride, char* stage, int64_t rows, int64_t left,
                                int64_t bytes) {
  for (; rows > 0; --rows, --left, row += stride, stage += kStagePitch<Size>) {
    const char* ahead = row + (left > kRowsAhead ? kRowsAhead : 0) * stride;
    int64_t k = 0;
    for (; k + kLine <= bytes; k += kLine) {
      __builtin_prefetch(ahead + k, 0, 2);
#pragma GCC unroll 4
      for (int part = 0; part < kLine; part += Widest::kBytes)
        Widest::store(stage + k + part, Widest::load(row + k + part));
    }
    __builtin_prefetch(ahead + bytes - 1, 0, 2);
    if (k < bytes) std::memcpy(stage + k, row + k, bytes - k);
  }
}

// Transposes the stage to the tile, column by column. The band has the height of a line, or less at the end.
template <int Size>
FASTGEMM_INLINE void transpose_stage(const char* stage, char* tile, int64_t rows, int64_t cols) {
  constexpr int64_t kCols = 16 / Size, kRows = Widest::kBytes / Size;
  if (rows < kLine / Size || cols % kCols)
    return transpose_tile<Size>(stage, kStagePitch<Size>, tile, kPitch, rows, cols);
  for (int64_t j = 0; j < cols; j += kCols) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLine / Size; i += kRows)
      transpose_registers<Widest, Size>(stage + i * kStagePitch<Size> + j * Size, kStagePitch<Size>,
                                        tile + i * Size + j * kPitch, kPitch);
  }
}

template <int Size>
void staged(const Block& b) {
  constexpr int64_t kBand = kLine / Size;
  alignas(kLine) char stage[kBand * kStagePitch<Size>];
  const auto fill = [&](const char* src, int64_t row, int64_t rows, int64_t cols, char* tile) {
    for (int64_t i = 0; i < rows; i += kBand) {
      const int64_t band = rows - i < kBand ? rows - i : kBand;
      stage_rows<Size>(src + (row + i) * b.src_stride, b.src_stride, stage, band, b.row_end - row - i,
                       cols * Size);
      transpose_stage<Size>(stage, tile + i * Size, band, cols);
    }
  };
  stream_block<Size, true>(b, fill);
}

// If rows are less than three lines apart, hardware prefetchers follow them, and copying parts of lines costs
// more than it gains: 1M x 3 floats take 4.9 ms with the stage and 0.85 ms without it, on two Zen 3 cores.
template <int Size>
void pipelined(const Block& b) {
  if (b.src_stride >= 3 * kLine || b.cols * Size % kLine == 0) return staged<Size>(b);
  const auto fill = [&](const char* src, int64_t row, int64_t rows, int64_t cols, char* tile) {
    transpose_tile<Size>(src + row * b.src_stride, b.src_stride, tile, kPitch, rows, cols);
  };
  stream_block<Size, false>(b, fill);
}

}  // namespace

void pipelined_block(int element_size, const Block& b) { FASTGEMM_DISPATCH_SIZE(element_size, pipelined, b) }

}  // namespace fastgemm::FASTGEMM_ISA
