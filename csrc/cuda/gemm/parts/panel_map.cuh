// The map by which the tensor memory accelerator loads boxes of a panel.
#pragma once

#include "cuda/device/tma.cuh"
#include "cuda/gemm/parts/panels.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class Word>
TensorMap map_of(const Panel<Word>& p, int batch, int box_columns, int box_rows) {
  const bool shared = p.batch_stride == 0;
  const int64_t bytes = sizeof(Word), plane = shared ? p.rows * p.row_stride : p.batch_stride;
  return make_tensor_map({p.data, int(bytes), p.columns, p.rows, shared ? 1 : batch, p.row_stride * bytes,
                          plane * bytes, box_columns, box_rows});
}

}  // namespace fastgemm::FASTGEMM_TARGET
