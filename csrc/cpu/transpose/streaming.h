// The loops of levels 5 and 6: down a strip of columns, tile by tile. Each tile is transposed to a buffer in
// L2, and written from there to dst in whole cache lines with non-temporal stores.
//
// Rows of dst may start anywhere in a line (odd sizes). A tile may write only complete lines, so its part of
// a dst row differs from row to row. So in front of each row the buffer keeps a line of the tile above. From
// each row the complete lines are written: from the last line boundary before the tile to the last one inside
// it. Only the two ends of a dst row are written with ordinary stores.
#pragma once

#include "cpu/transpose/simd.h"
#include "cpu/transpose/stream_row.h"

namespace fastgemm::FASTGEMM_ISA {

// The height of a tile in bytes of a dst row, and the width of a strip in bytes of a src row. One Zen 3 core
// writes non-temporal runs of 64 bytes at a third of the rate of 256 bytes. Longer runs gain nothing there: a
// tile of 256 x 256 bytes, its buffer and the next tile fit together in an L2 of 512 KiB. Servers with
// AVX-512 have an L2 of 1 MiB or more. With 512 bytes `pipelined` goes on a Zen 4 core from 0.85 to 0.98 of a
// copy's bandwidth for elements of 1 byte, from 0.92 to 1.03 for 2, from 0.96 to 1.10 for 4, and from 0.83 to
// 0.95 for 8 (6144 x 6144); 1024 bytes lose again. Strips of 1-byte elements stay narrow: so the buffer (200
// KiB) and the stage of level 6 fit on a thread's stack and in L1, and no speed is lost.
#if defined(__AVX512F__)
inline constexpr int64_t kTileBytes = 512;
#else
inline constexpr int64_t kTileBytes = 256;
#endif
static_assert(kCutBytes % kTileBytes == 0);
template <int Size>
inline constexpr int64_t kTileStripBytes = Size == 1 ? 256 : kTileBytes;

inline constexpr int64_t kPitch = kLine + kTileBytes + kLine;  // of a row: line above, tile, extra line

// The size of the next piece: `Full`. But if at most `Full` + `Spare` are left, the piece takes all of them:
// a last piece of one row or column would touch as many lines and pages as a full one.
template <int64_t Full, int64_t Spare>
FASTGEMM_INLINE int64_t take(int64_t left) {
  return left <= Full + Spare ? left : Full;
}

// Offset of the last line boundary at or before byte `offset` of a row of dst.
FASTGEMM_INLINE int64_t line_boundary(const char* row, int64_t offset) {
  return offset - static_cast<int64_t>(reinterpret_cast<uintptr_t>(row + offset) & (kLine - 1));
}

// Part of src: `rows` rows of `bytes` bytes.
struct Piece {
  const char* row;
  int64_t stride, rows, bytes;
};

// Prefetches every line of a row. If rows are unaligned, this includes the line of the last byte: a read of a
// line that was not prefetched would stall.
FASTGEMM_INLINE void prefetch_row(const char* row, int64_t bytes) {
  for (int64_t k = 0; k < bytes; k += kLine) __builtin_prefetch(row + k, 0, 2);
  __builtin_prefetch(row + bytes - 1, 0, 2);
}

// The tile after the one that ends in row `end` and column `next_col`: the one below it, or the first tile of
// the next strip.
template <int Size>
FASTGEMM_INLINE Piece tile_after(const Block& b, int64_t col, int64_t next_col, int64_t end) {
  constexpr int64_t kRows = kTileBytes / Size, kCols = kTileStripBytes<Size> / Size, kSpare = kLine / Size;
  const int64_t row = end < b.row_end ? end : b.row_begin, j = end < b.row_end ? col : next_col;
  const int64_t cols = end < b.row_end ? next_col - col : take<kCols, kSpare>(b.cols - next_col);
  const int64_t rows = cols > 0 ? take<kRows, kSpare>(b.row_end - row) : 0;
  return {b.src + row * b.src_stride + j * Size, b.src_stride, rows, cols * Size};
}

// Writes the lines of each dst row that tile rows [i0, i1) complete, and keeps the last line for the tile
// below. Meanwhile it prefetches rows of `next` at an even rate.
template <int Size>
FASTGEMM_INLINE void drain(const Block& b, char* dst, char* buffer, int64_t i0, int64_t i1, int64_t cols,
                           const Piece& next) {
  int64_t fetched = 0;
  for (int64_t j = 0; j < cols; ++j, dst += b.dst_stride, buffer += kPitch) {
    const int64_t begin = i0 == 0 ? 0 : line_boundary(dst, i0 * Size);
    const int64_t end = i1 == b.rows ? i1 * Size : line_boundary(dst, i1 * Size);
    stream_row(dst, buffer + kLine + begin - i0 * Size, begin, end);
    if (end < i1 * Size) std::memcpy(buffer, buffer + (i1 - i0) * Size, kLine);
    for (const int64_t due = next.rows * (j + 1) / cols; fetched < due; ++fetched)
      prefetch_row(next.row + fetched * next.stride, next.bytes);
  }
}

// Transposes block b. fill(src, row, rows, cols, buffer) transposes rows [row, row + rows) of the strip that
// starts at src into the buffer; each rung has its own. With Ahead the next tile is prefetched while this one
// is written.
template <int Size, bool Ahead, class Fill>
FASTGEMM_INLINE void stream_block(const Block& b, Fill fill) {
  constexpr int64_t kRows = kTileBytes / Size, kCols = kTileStripBytes<Size> / Size, kSpare = kLine / Size;
  alignas(kLine) char buffer[(kCols + kSpare) * kPitch];  // (columns of src, one line + rows of src + spare)
  for (int64_t j = 0, cols; j < b.cols; j += cols) {
    cols = take<kCols, kSpare>(b.cols - j);
    const char* src = b.src + j * Size;
    char* dst = b.dst + j * b.dst_stride;
    if (b.row_begin > 0)  // the line that the piece above did not write
      transpose_tile<Size>(src + (b.row_begin - kSpare) * b.src_stride, b.src_stride, buffer, kPitch, kSpare,
                           cols);
    for (int64_t i = b.row_begin, rows; i < b.row_end; i += rows) {
      rows = take<kRows, kSpare>(b.row_end - i);
      fill(src, i, rows, cols, buffer + kLine);
      const Piece next = Ahead ? tile_after<Size>(b, j, j + cols, i + rows) : Piece{};
      drain<Size>(b, dst, buffer, i, i + rows, cols, next);
    }
  }
  stream_fence();
}

}  // namespace fastgemm::FASTGEMM_ISA
