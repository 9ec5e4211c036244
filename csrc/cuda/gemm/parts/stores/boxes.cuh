// C, and the matrix c that is added times beta, as matrices that the TMA writes and reads in boxes. Contract:
// readable() and writable() say whether the TMA can do so, map() makes the TMA descriptor, and boxes_of_c()
// copies a c that the TMA cannot read.
//
//   C           n                                a box has kBoxBytes = 2048 bytes:
//     +-------+-------+--                        16 rows of 128 bytes, or transposed
//   m | box 0 | box 1 | ...   16 rows            32 rows of 64 bytes
//     +-------+-------+--
//     |<-128->| bytes
#pragma once

#include "cuda/device/tma.cuh"
#include "cuda/gemm/parts/sources/row_copies.cuh"
#include "cuda/gemm/parts/stores/box.cuh"
#include "cuda/gemm/parts/stores/mirrored_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct Boxes {
  const void* data;
  int64_t row_stride, batch_stride;

  // Whether the TMA can read the matrix: its rows begin at multiples of 16 bytes and do not overlap.
  template <class T>
  bool readable(const Gemm<T>& g, int batch) const {
    const int64_t unit = 16 / g.result.out_bytes();
    return is_aligned(static_cast<const char*>(data), 16) && row_stride % unit == 0 && row_stride >= g.n &&
           (batch == 1 || (batch_stride % unit == 0 && batch_stride > 0));
  }
  // Whether the TMA can also write the matrix. It writes the last 16 bytes of a row as a whole, which must
  // not overwrite what lies behind the row.
  template <class T>
  bool writable(const Gemm<T>& g, int batch) const {
    return readable(g, batch) && g.n * g.result.out_bytes() % 16 == 0;
  }
  // The TMA descriptor of the transposed boxes of MirroredStore, for 16-bit results.
  template <class T>
  TensorMap turned_map(const Gemm<T>& g, int batch) const {
    const int64_t plane = batch == 1 ? g.m * row_stride : batch_stride;
    return make_tensor_map(
        {data, 2, g.n, g.m, batch, row_stride * 2, plane * 2, kTurnedColumns, kTurnedRows, kTurnedSwizzle});
  }
  template <class T>
  TensorMap map(const Gemm<T>& g, int batch, bool transposed) const {
    const int bytes = g.result.out_bytes();
    const int64_t plane = batch == 1 ? g.m * row_stride : batch_stride;
    const Swizzle width = box_swizzle(transposed, bytes);
    return make_tensor_map({data, bytes, g.n, g.m, batch, row_stride * bytes, plane * bytes,
                            int(width) / bytes, kBoxBytes / int(width), width});
  }
};

// Returns c in place, or a copy of it where the TMA cannot read it.
template <class T>
Boxes boxes_of_c(const Gemm<T>& g, int batch, RowCopies& copies, Context& context) {
  const Result<T>& r = g.result;
  const Boxes c{r.c, r.c_row_stride, r.c_batch_stride};
  if (r.c_col_stride == 1 && c.readable(g, batch)) return c;
  const auto copy = [&]<class Out>(const Out* data) {
    // Even where the batch shares c, the copy has a matrix for each matrix of the batch.
    const PackedRows<Out> rows =
        copies.add(data, g.m, g.n, r.c_row_stride, r.c_col_stride, r.c_batch_stride, batch, context, true);
    return Boxes{rows.data, rows.row_stride, rows.batch_stride};
  };
  if constexpr (Result<T>::kMayBeWide) {
    if (r.wide) return copy(static_cast<const float*>(r.c));
  }
  return copy(static_cast<const typename Result<T>::Stored*>(r.c));
}

}  // namespace fastgemm::FASTGEMM_TARGET
