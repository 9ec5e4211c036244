// x of packed products by cp.async: a stage of BM rows goes into tiles of 128-byte lines side by side, zeros
// where it lies outside x.
#pragma once

#include "cuda/gemm/packed/problem.cuh"
#include "cuda/gemm/parts/line_tile.cuh"
#include "cuda/gemm/parts/sources/row_copies.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T, int BM>
using XTile = LineTile<T, true, BM, SwizzledLines<8>>;  // (BM, 128 bytes)

// x in place if its rows begin at multiples of 16 bytes, else a copy of it.
template <class T>
PackedRows<T> aligned_x(const Gemm<T>& g, Context& context) {
  const PackedRows<T> x{g.a.data, g.m == 1 ? 0 : g.a.row_stride, 0};
  if (rows_aligned(x)) return x;
  RowCopies copies;
  const PackedRows<T> copied = copies.add(g.a.data, g.m, g.k, g.a.row_stride, 1, 0, 1, context);
  copies.launch({}, context);
  return copied;
}

// All threads of the block copy BM rows from `row0` on and TILES tiles of columns from k0 on.
template <int BM, int TILES, int THREADS, class T>
__device__ __forceinline__ void copy_x_stage(unsigned char* to, const PackedRows<T>& x, int m, int k,
                                             int row0, int k0) {
  using Tile = XTile<T, BM>;
  constexpr int kUnits = TILES * BM * 8, kEach = kPer16Bytes<T>;
  static_assert(kUnits % THREADS == 0);
  FASTGEMM_NO_UNROLL  // the addresses of all units at once would take too many registers
      for (int i = 0; i < kUnits / THREADS; ++i) {
    const int unit = i * THREADS + int(threadIdx.x), line = unit / 8 % BM, tile = unit / 8 / BM;
    const int row = row0 + line, column = k0 + tile * Tile::kK + unit % 8 * kEach;
    const int valid = row < m ? max(0, min(k - column, kEach)) : 0;
    const T* const from = valid > 0 ? x.data + row * x.row_stride + column : x.data;
    copy_async<16>(to + tile * Tile::kBytes + Tile::offset(line, unit % 8), from, valid * int(sizeof(T)));
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
