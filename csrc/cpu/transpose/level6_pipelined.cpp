// Level 6: data moves one cache level nearer ahead of its use. While a tile is transposed, the tile below
// is prefetched into L2: hardware prefetchers do not follow a walk that leaves the page with every row.
// From L2 each band of rows, unless they are short, is copied once to a dense stage in L1, because a register
// transpose reads a line in four visits of 16 bytes, and rows a multiple of 2 KiB apart (6144 bytes, 4096
// floats) share so few L1 sets that the line is gone between visits. Prefetching straight into L1 fails for
// that reason. On two Zen 4 cores at 6144, GB/s: 1-byte elements 17 -> 37, 4-byte 25 -> 34, 16-byte 26 -> 28.
#include "cpu/transpose/streaming.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

constexpr int64_t kStagePitch = kStripBytes + kLine;

// Every line that `rows` rows of `bytes` bytes touch; the last one counts when rows are unaligned, since
// a single line that was left out stalls the copy of its row.
FASTGEMM_INLINE void prefetch_rows(const char* row, int64_t stride, int64_t rows, int64_t bytes) {
  for (; rows > 0; --rows, row += stride) {
    for (int64_t k = 0; k < bytes; k += kLine) __builtin_prefetch(row + k, 0, 2);
    __builtin_prefetch(row + bytes - 1, 0, 2);
  }
}

FASTGEMM_INLINE void stage_rows(const char* row, int64_t stride, char* stage, int64_t rows, int64_t bytes) {
  for (; rows > 0; --rows, row += stride, stage += kStagePitch) {
    int64_t k = 0;
    for (; k + kLine <= bytes; k += kLine) {
#pragma GCC unroll 4
      for (int part = 0; part < kLine; part += Widest::kBytes)
        Widest::store(stage + k + part, Widest::load(row + k + part));
    }
    if (k < bytes) std::memcpy(stage + k, row + k, bytes - k);
  }
}

template <int Size>
void pipelined(const Block& b) {
  constexpr int64_t kBand = Widest::kBytes / Size;
  alignas(kLine) char stage[kBand * kStagePitch];
  // Rows less than three lines apart are what hardware prefetchers follow, and to copy parts of lines costs
  // more than it gains: 1M x 3 floats take 4.9 ms with the stage and 0.85 without, on two Zen 3 cores.
  const bool direct = b.src_stride < 3 * kLine && b.cols * Size % kLine != 0;
  stream_block<Size>(b, [&](const char* src, int64_t row, int64_t rows, int64_t cols, char* tile) {
    if (direct) return transpose_tile<Size>(src + row * b.src_stride, b.src_stride, tile, kPitch, rows, cols);
    for (int64_t i = 0; i < rows; i += kBand) {
      const int64_t band = rows - i < kBand ? rows - i : kBand, ahead = row + rows + i;
      if (ahead < b.row_end) {
        const int64_t left = b.row_end - ahead;
        prefetch_rows(src + ahead * b.src_stride, b.src_stride, left < band ? left : band, cols * Size);
      }
      stage_rows(src + (row + i) * b.src_stride, b.src_stride, stage, band, cols * Size);
      transpose_tile<Size>(stage, kStagePitch, tile + i * Size, kPitch, band, cols);
    }
  });
}

}  // namespace

void pipelined_block(int element_size, const Block& b) { FASTGEMM_DISPATCH_SIZE(element_size, pipelined, b) }

}  // namespace fastgemm::FASTGEMM_ISA
