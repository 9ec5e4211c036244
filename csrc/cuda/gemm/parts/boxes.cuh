// C, and the matrix c that is added beta times, as matrices that the TMA writes and reads in boxes.
// Contract: readable() and writable() say whether the TMA can, map() makes the TMA descriptor, and
// boxes_of_c() copies a c that it cannot read.
//
//   C           n                                a box has kBoxBytes = 2048 bytes:
//     +-------+-------+--                        16 rows of 128 bytes, or transposed
//   m | box 0 | box 1 | ...   16 rows            32 rows of 64 bytes
//     +-------+-------+--
//     |<-128->| bytes
#pragma once

#include "cuda/device/tma.cuh"
#include "cuda/gemm/parts/mirrored_store.cuh"
#include "cuda/gemm/parts/row_copies.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct Boxes {
  const void* data;
  int64_t row_stride, batch_stride;

  // Whether the TMA can read them: rows begin at multiples of 16 bytes.
  template <class T>
  bool readable(const Gemm<T>& g, int batch) const {
    const int64_t unit = 16 / g.result.out_bytes();
    return is_aligned(static_cast<const char*>(data), 16) && row_stride % unit == 0 && row_stride >= g.n &&
           (batch == 1 || (batch_stride % unit == 0 && batch_stride > 0));
  }
  // Whether the TMA can write them, too: it writes the last 16 bytes of a row as a whole, and must not
  // overwrite what lies behind the row.
  template <class T>
  bool writable(const Gemm<T>& g, int batch) const {
    return readable(g, batch) && g.n * g.result.out_bytes() % 16 == 0;
  }
  // Of the boxes that MirroredStore turns, of 16-bit results.
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
    const Swizzle width = transposed ? Swizzle::bytes64 : Swizzle::bytes128;
    return make_tensor_map({data, bytes, g.n, g.m, batch, row_stride * bytes, plane * bytes,
                            int(width) / bytes, kBoxBytes / int(width), width});
  }
};

// Returns the c that is added, or a copy of it where the TMA cannot read it.
template <class T>
Boxes boxes_of_c(const Gemm<T>& g, int batch, RowCopies& copies, Context& context) {
  const Result<T>& r = g.result;
  const Boxes c{r.c, r.c_row_stride, r.c_batch_stride};
  if (r.c_col_stride == 1 && c.readable(g, batch)) return c;
  const auto copy = [&]<class Out>(const Out* data) {
    // Every matrix of the batch has boxes of its own in the copy, whether the batch shares c or not.
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
