#include "cuda/gemm/parts/operand_rows.cuh"
#include "cuda/gemm/parts/sides.cuh"
#include "cuda/gemm/parts/sources/row_copies.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <OperandLayout layout, class T>
RowsOperand<T> rows_operand(const Side<T>& s, int batch, RowCopies& copies, Context& context) {
  const bool along_k = s.k == 1 || s.k_stride == 1;
  const int64_t rows = along_k ? s.side : s.k, columns = along_k ? s.k : s.side;
  PackedRows<T> at{s.data, rows == 1 ? 0 : along_k ? s.side_stride : s.k_stride, s.batch_stride};
  const bool as_it_lies = along_k || layout == OperandLayout::any;
  if (as_it_lies && rows_aligned(at))
    return {at.data, at.row_stride, at.batch_stride, int(s.side), int(s.k), along_k};
  // RowCopies pads each row to whole lines, which would make short rows many times as long. It does not copy
  // elements of 8 bytes.
  const bool copied_as_rows = as_it_lies && sizeof(T) < 8 && columns * int64_t(sizeof(T)) >= kLineBytes;
  at = copied_as_rows
           ? copies.add(s.data, rows, columns, at.row_stride, 1, s.batch_stride, batch, context)
           : pack_rows(s.data, s.side, s.k, s.side_stride, s.k_stride, s.batch_stride, batch, context);
  return {at.data, at.row_stride, at.batch_stride, int(s.side), int(s.k), along_k || !copied_as_rows};
}

}  // namespace

template <OperandLayout layout, class T>
RowsOperands<T> rows_operands(const Gemm<T>& g, int batch, Context& context, std::span<uint32_t> flags) {
  RowCopies copies;
  constexpr OperandLayout a = layout == OperandLayout::any ? OperandLayout::any : OperandLayout::along_k;
  constexpr OperandLayout b = layout == OperandLayout::along_k ? OperandLayout::along_k : OperandLayout::any;
  const RowsOperands<T> operands{rows_operand<a>(side_a(g, batch), batch, copies, context),
                                 rows_operand<b>(side_b(g, batch), batch, copies, context)};
  copies.launch(flags, context);
  return operands;
}

#define FASTGEMM_ROWS_OPERANDS(layout, T) \
  template RowsOperands<T> rows_operands<layout>(const Gemm<T>&, int, Context&, std::span<uint32_t>);
FASTGEMM_ROWS_OPERANDS(OperandLayout::along_k, double)
FASTGEMM_ROWS_OPERANDS(OperandLayout::along_k, float)
FASTGEMM_ROWS_OPERANDS(OperandLayout::along_k, int8_t)
FASTGEMM_ROWS_OPERANDS(OperandLayout::along_k, Half)
FASTGEMM_ROWS_OPERANDS(OperandLayout::along_k, BFloat16)
FASTGEMM_ROWS_OPERANDS(OperandLayout::a_along_k, double)
FASTGEMM_ROWS_OPERANDS(OperandLayout::a_along_k, Half)
FASTGEMM_ROWS_OPERANDS(OperandLayout::a_along_k, BFloat16)
FASTGEMM_ROWS_OPERANDS(OperandLayout::any, double)
FASTGEMM_ROWS_OPERANDS(OperandLayout::any, Half)
FASTGEMM_ROWS_OPERANDS(OperandLayout::any, BFloat16)
#undef FASTGEMM_ROWS_OPERANDS

}  // namespace fastgemm::FASTGEMM_TARGET
