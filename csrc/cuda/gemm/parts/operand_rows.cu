#include "cuda/gemm/parts/copied_operand.cuh"
#include "cuda/gemm/parts/operand_rows.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <Takes takes, class T>
RowsOperand<T> rows_operand(const T* data, int64_t side, int64_t k, int64_t side_stride, int64_t k_stride,
                            int64_t batch_stride, int batch, Context& context) {
  PackedRows<T> rows{data, 0, batch > 1 ? batch_stride : 0};
  const bool along_k = k == 1 || k_stride == 1;
  if ((along_k ? side : k) > 1) rows.row_stride = along_k ? side_stride : k_stride;
  if (rows_aligned(rows) && (along_k || takes == Takes::any))
    return {rows.data, rows.row_stride, rows.batch_stride, int(side), int(k), along_k};
  rows = pack_rows(data, side, k, side_stride, k_stride, rows.batch_stride, batch, context);
  return {rows.data, rows.row_stride, rows.batch_stride, int(side), int(k), true};
}

#define FASTGEMM_ROWS_OPERAND(takes, T)                                                                   \
  template RowsOperand<T> rows_operand<takes>(const T*, int64_t, int64_t, int64_t, int64_t, int64_t, int, \
                                              Context&);
FASTGEMM_ROWS_OPERAND(Takes::along_k, double)
FASTGEMM_ROWS_OPERAND(Takes::along_k, float)
FASTGEMM_ROWS_OPERAND(Takes::along_k, int8_t)
FASTGEMM_ROWS_OPERAND(Takes::along_k, Half)
FASTGEMM_ROWS_OPERAND(Takes::along_k, BFloat16)
FASTGEMM_ROWS_OPERAND(Takes::any, double)
FASTGEMM_ROWS_OPERAND(Takes::any, Half)
FASTGEMM_ROWS_OPERAND(Takes::any, BFloat16)
#undef FASTGEMM_ROWS_OPERAND

}  // namespace fastgemm::FASTGEMM_TARGET
