// Stores boxes where the TMA cannot, because rows of C do not begin at multiples of 16 bytes. Contract: a
// warp that has no other work calls store_rows() for a box that another warp has written.
#pragma once

#include "cuda/gemm/parts/stores/box.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Describes a C whose rows may begin at any address.
struct ResultRows {
  void* data;  // null where the TMA stores the boxes
  int64_t row_stride, batch_stride;
  int m, n;
};

// Stores a box by a warp: each lane stores a 32-bit word of a row. Rows are stored in two groups, even and
// odd ones, because all rows of a group are aligned in the same way: either words of C are aligned to words
// of the box, or rows of 16-bit elements begin in the middle of a word. In the latter case each word is
// assembled from the halves of two words, and the first and the last element are stored by themselves. The
// code is short, because three warps have to keep up with the tensor cores.
template <class Out, class Shape>
__device__ __forceinline__ void store_rows(const unsigned char* box, const ResultRows& out,
                                           const RowsPlace& at) {
  constexpr int kSize = sizeof(Out), kRowBytes = int(Shape::kSwizzle), kLanes = kRowBytes / 4;
  constexpr int kAtOnce = 32 / kLanes, kHalf = Shape::kRows / kAtOnce / 2;
  const int lane = fresh_lane(), byte = lane % kLanes * 4;
  const int end = min(out.n - at.column, Shape::kColumns) * kSize;  // bytes of a row inside C
  if (end <= 0) return;
  const int64_t stride = out.row_stride * kSize, step = 2 * kAtOnce * stride;
  FASTGEMM_NO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int first = lane / kLanes * 2 + half, rows = out.m - at.row - first;
    unsigned char* to = static_cast<unsigned char*>(out.data) + (at.row + first) * stride + byte +
                        (at.plane * out.batch_stride + at.column) * kSize;
    uint32_t value[kHalf];
    FASTGEMM_UNROLL
    for (int i = 0; i < kHalf; ++i)
      value[i] = load_vector<uint32_t>(
          box + swizzled<Shape::kSwizzle>(uint32_t((first + 2 * i * kAtOnce) * kRowBytes + byte)));
    const auto store = [&](unsigned char* row, auto&& element) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kHalf; ++i, row += step)
        if (2 * i * kAtOnce < rows) store_vector(row, element(value[i]));
    };
    const auto low = [](uint32_t word) { return uint16_t(word); };
    if (kSize == 4 || is_aligned(to, 4)) {
      if (byte + 4 <= end)
        store(to, [](uint32_t word) { return word; });
      else if (byte < end)
        store(to, low);
      continue;
    }
    if (byte == 0) store(to, low);
    FASTGEMM_UNROLL
    for (int i = 0; i < kHalf; ++i)
      value[i] = __byte_perm(value[i], __shfl_down_sync(0xffffffffu, value[i], 1), 0x5432);
    if (byte + 6 <= end)
      store(to + 2, [](uint32_t word) { return word; });
    else if (byte + 4 <= end)
      store(to + 2, low);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
