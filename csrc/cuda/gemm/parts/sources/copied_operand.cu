#include "cuda/gemm/parts/sources/copied_operand.cuh"
#include "cuda/transpose/levels.h"

namespace fastgemm::FASTGEMM_TARGET {

// Copies by fastgemm's transpose. It gets a view whose rows and columns are exchanged, so the copy is not
// transposed.
template <class T>
PackedRows<T> pack_rows(const T* data, int64_t rows, int64_t columns, int64_t row_stride,
                        int64_t column_stride, int64_t batch_stride, int batch, Context& context) {
  constexpr int64_t kUnit = kPer16Bytes<T>;
  TransposeProblem copy;
  copy.type = sizeof(T) == 1   ? DType::bits8
              : sizeof(T) == 2 ? DType::bits16
              : sizeof(T) == 4 ? DType::bits32
                               : DType::bits64;
  copy.batch = batch_stride == 0 ? 1 : batch;
  copy.rows = columns, copy.cols = rows;
  copy.src = {data, columns == 1 ? 1 : column_stride, rows == 1 ? 1 : row_stride, batch_stride};
  const int64_t pitch = ceil_div(columns, kUnit) * kUnit, plane = rows * pitch;
  copy.dst = {context.allocate(size_t(copy.batch * plane) * sizeof(T)), pitch, 1, plane};
  transpose_pipelined(copy, context);
  return {static_cast<const T*>(copy.dst.data), pitch, batch_stride == 0 ? 0 : plane};
}

#define FASTGEMM_PACK_ROWS(T) \
  template PackedRows<T> pack_rows(const T*, int64_t, int64_t, int64_t, int64_t, int64_t, int, Context&);
FASTGEMM_PACK_ROWS(double)
FASTGEMM_PACK_ROWS(float)
FASTGEMM_PACK_ROWS(Half)
FASTGEMM_PACK_ROWS(BFloat16)
FASTGEMM_PACK_ROWS(int8_t)
#undef FASTGEMM_PACK_ROWS

}  // namespace fastgemm::FASTGEMM_TARGET
