// C, and the c that beta times is added, as matrices whose boxes the tensor memory accelerator writes and
// reads: which can be, a copy of a c that cannot, and the tensor maps.
#pragma once

#include "cuda/device/tma.cuh"
#include "cuda/gemm/parts/box_store.cuh"
#include "cuda/gemm/parts/row_copies.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct Boxes {
  const void* data;
  int64_t row_stride, batch_stride;

  // Whether the tensor memory accelerator can read them.
  template <class T>
  bool readable(const Gemm<T>& g, int batch) const {
    const int64_t unit = 16 / g.result.out_bytes();
    return is_aligned(static_cast<const char*>(data), 16) && row_stride % unit == 0 && row_stride >= g.n &&
           (batch == 1 || (batch_stride % unit == 0 && batch_stride > 0));
  }
  // And write: the last 16 bytes of a row it writes as a whole, and what lies behind the row with them.
  template <class T>
  bool writable(const Gemm<T>& g, int batch) const {
    return readable(g, batch) && g.n * g.result.out_bytes() % 16 == 0;
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

// The c that is added where boxes of it can be read, or a copy.
template <class T>
Boxes boxes_of_c(const Gemm<T>& g, int batch, RowCopies& copies, Context& context) {
  const Result<T>& r = g.result;
  const Boxes c{r.c, r.c_row_stride, r.c_batch_stride};
  if (r.c_col_stride == 1 && c.readable(g, batch)) return c;
  const auto copy = [&]<class Out>(const Out* data) {
    // All the batch has boxes of its own, whether it shares c or not.
    const PackedRows<Out> rows =
        copies.add(data, g.m, g.n, r.c_row_stride, r.c_col_stride, r.c_batch_stride, batch, context, true);
    return Boxes{rows.data, rows.row_stride, rows.batch_stride};
  };
  if constexpr (Result<T>::kMayBeWide) {
    if (r.wide) return copy(static_cast<const float*>(r.c));
  }
  return copy(static_cast<const typename Result<T>::Narrow*>(r.c));
}

}  // namespace fastgemm::FASTGEMM_TARGET
